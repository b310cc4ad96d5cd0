"""The summary of a plan: a row for each entity, above the steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings

from bridge.model import entity as model
from bridge.topology import definitions
from bridge.topology.diff import Action
from policies import plan, plan_summary, plan_text
from policies.plan_summary import SHARED
from tests.fixtures.examples import examples
from tests.unit.policies.test_plan import between, theirs
from tests.unit.topology.entities import namespaces


def events(*subscriptions: str) -> model.Topic:
    """A topic with these subscriptions."""
    return model.Topic(
        name="Events",
        subscriptions=tuple(
            model.Subscription(topic="Events", name=name) for name in subscriptions
        ),
    )


BEFORE = model.Namespace(
    queues=(
        model.Queue(name="Orders", max_delivery_count=9),
        model.Queue(name="old"),
        model.Queue(name="same"),
    ),
    topics=(events("Audit"),),
)
AFTER = model.Namespace(
    queues=(
        model.Queue(name="Orders", max_delivery_count=2),
        model.Queue(name="new"),
        model.Queue(name="same"),
    ),
    topics=(events("Audit", "Mail"),),
)


def test_each_entity_has_a_row_above_the_steps() -> None:
    """What becomes of it, how many steps, the messages at stake, the properties that differ."""
    made = replace(
        between(BEFORE, AFTER),
        names=plan.display_names(AFTER),
        messages={"old": 1_200, "old/$inbox": 4, "old/$deadletterqueue": 0, "old/$journal": 9_999},
    )
    lines = plan_text.text(made).splitlines()
    assert [" ".join(line.split()) for line in lines[:9]] == [
        "entity change to create to update to delete at stake properties",
        " ".join("-" * width for width in (39, 7, 9, 9, 9, 8, 16)),
        "Events/Subscriptions/Mail new 12",
        "new new 19",
        "old removed 9 1,204",
        "Orders changed 1 maxDeliveryCount",
        f"{SHARED} 1 2 1",
        "Entities that stay as they are: 3.",
        "",
    ]
    ends = [len(line) for line in lines if line.endswith(("12", "19"))][:2]
    assert ends == [len("-" * 39 + "  " + "-" * 7 + "  " + "-" * 9)] * 2, "numbers end together"
    assert lines[9].startswith("+ policy ")
    assert lines[-1] == "32 to create, 3 to update, 10 to delete, 8 of them destructive."


def test_the_word_of_a_change_has_the_colour_of_its_steps() -> None:
    """At a terminal alone; the row of what all share has no word."""
    made = between(BEFORE, AFTER)
    assert not any("\x1b" in line for line in plan_summary.table(made))
    rows = plan_summary.table(made, is_coloured=True)
    painted = {row.split()[0]: row for row in rows if "\x1b" in row}
    assert {name: row.split("\x1b[")[1][:2] for name, row in painted.items()} == {
        "Events/Subscriptions/Mail": "32",
        "new": "32",
        "old": "31",
        "Orders": "33",
    }


def test_a_count_that_rabbitmq_does_not_tell_is_not_made_up() -> None:
    """One queue of an entity whose count is missing makes the sum unknown."""
    made = replace(between(BEFORE, AFTER), messages={"old": 1_200, "old/$inbox": 4})
    assert any("not known" in line for line in plan_summary.table(made))


def test_messages_at_stake_are_their_entitys_whatever_policy_puts_them_at_stake() -> None:
    """A policy is shared by entities: its own row has no messages."""
    before = model.Namespace(queues=(model.Queue(name="a"),))
    after = model.Namespace(queues=(model.Queue(name="a", default_message_time_to_live_ms=1_000),))
    made = between(before, after)
    assert made.destructive
    rows = {row.path: row for row in plan_summary.entities(replace(made, messages={"a": 7}))}
    assert rows["a"].stakes == ("a",)
    assert rows[SHARED].stakes == ()


def test_a_queue_of_somebody_elses_is_a_conflict() -> None:
    """It can be changed by nobody but its owner."""
    classic = {"vhost": "/", "name": "orders", "durable": True, "auto_delete": False}
    made = between(
        model.Namespace(),
        model.Namespace(queues=(model.Queue(name="orders"),)),
        queues=[{**classic, "arguments": {"x-queue-type": "classic"}}],
    )
    row = next(row for row in plan_summary.entities(made) if row.path == "orders")
    assert (row.fate, row.counts[Action.CONFLICT]) == (Action.CONFLICT, 1)


def test_a_plan_without_steps_has_no_table() -> None:
    """Also where somebody else's policy is in force: that is said below."""
    assert plan_text.text(between(BEFORE, BEFORE)) == "Nothing to change.\n"
    above = between(BEFORE, BEFORE, policies=[theirs(".*", max_length=1) | {"priority": 2_000}])
    assert not above.is_empty
    assert plan_summary.table(above) == []


@settings(max_examples=examples(60), deadline=None)
@given(namespaces(), namespaces())
def test_the_rows_add_up_to_the_plan(before: model.Namespace, after: model.Namespace) -> None:
    """Each step is in one row, each new entity is new, and each that goes is removed."""
    made = between(before, after)
    rows = plan_summary.entities(made)
    counts = sum((row.counts for row in rows), Counter[Action]())
    assert counts == Counter(change.action for change in made.changes)
    paths = [{each.path.lower() for each in definitions.entities(n)} for n in (before, after)]
    fates = {row.path.lower(): row.fate for row in rows}
    for path in paths[1] - paths[0]:
        assert fates[path] is Action.CREATE
    for path in paths[0] - paths[1]:
        assert fates[path] is Action.DELETE
    assert {path for path, fate in fates.items() if path not in paths[0] | paths[1]} <= {
        SHARED.lower()
    }
