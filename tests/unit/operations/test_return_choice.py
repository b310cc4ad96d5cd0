"""Which entities come back from a migration's target, and why others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bridge.model import entity as model
from bridge.operations.migration.last_copied import LastCopied
from bridge.operations.migration.plan import MigrationSide
from bridge.operations.migration.return_choice import ReturnChoice, choose
from bridge.operations.migration.state_counts import StateCounts

OFF = model.EntityStatus.DISABLED
MADE = "1970-01-01T00:00:10Z"
SAID_MS = 20_000
LATER = "1970-01-01T00:00:30Z"
EXTRA = "events/Subscriptions/extra"


def side(
    *queues: model.Queue,
    audit: model.EntityStatus = model.EntityStatus.ACTIVE,
    extra: int | None = None,
    rules: tuple[model.Rule, ...] = (),
    counts: Mapping[str, int] | None = None,
) -> MigrationSide:
    """A namespace of queues and a topic.

    Args:
        extra: a second subscription has so many messages.
        rules: those of the subscription `audit`.
        counts: messages of others, by path in lower case.
    """
    subscriptions = [model.Subscription(topic="events", name="audit", status=audit, rules=rules)]
    if extra is not None:
        subscriptions.append(model.Subscription(topic="events", name="extra"))
    events = model.Topic(name="events", subscriptions=tuple(subscriptions))
    all_counts = {EXTRA.lower(): extra or 0, **(counts or {})}
    counted = {path: StateCounts(counts={"active": count}) for path, count in all_counts.items()}
    namespace = model.Namespace(queues=queues, topics=(events,))
    return MigrationSide(tier=model.Tier.STANDARD, namespace=namespace, counted=counted)


def chosen(
    here: MigrationSide,
    there: MigrationSide,
    *,
    returned: str = "",
    unrecorded: str = "",
    made: str = MADE,
    meant: set[str] | None = None,
    since: str = "",
    returns: bool = False,
) -> ReturnChoice:
    """What comes back of all that the source has, which a run has copied.

    Args:
        since: what was made at the target when the run had ended, in lower case.
        returns: what is new at the target is brought.
    """
    meant = set(here.by_path()) if meant is None else meant
    recorded = {
        path: (LastCopied(path=path, lasts={}, is_returned=path == returned), SAID_MS)
        for path in meant
        if path != unrecorded
    }
    created = dict.fromkeys(there.by_path(), made) | ({since: LATER} if since else {})
    return choose(here, there, meant, recorded, created, {}, returns=returns)


ORDERS = model.Queue(name="Orders")
OTHER = model.Queue(name="other")


def paths(found: ReturnChoice) -> list[str]:
    """What comes back."""
    return [each.path for each in found.coming]


def test_all_that_was_copied_and_is_there_comes_back() -> None:
    """With nothing said."""
    found = chosen(side(ORDERS), side(ORDERS))
    assert (paths(found), found.refused, found.is_in_part) == (["Orders", "events"], [], False)


def test_one_that_cannot_come_back_is_named_and_keeps_no_other() -> None:
    """It has no record, is gone, or takes no messages at one side."""
    found = chosen(side(ORDERS, OTHER), side(ORDERS, OTHER), unrecorded="orders")
    assert (paths(found), found.is_in_part) == (["other", "events"], True)
    assert found.refused == ["orders: no run that has come to its end has copied it."]
    found = chosen(side(ORDERS, OTHER), side(OTHER))
    assert (paths(found), found.is_in_part) == (["other", "events"], True)
    assert found.refused == ["Orders: it is not at the target."]
    assert not chosen(side(ORDERS), side(), unrecorded="orders").is_in_part
    off = replace(ORDERS, status=OFF)
    for here, there, name in (
        (off, ORDERS, "source"),
        (ORDERS, off, "target"),
        (off, off, "source"),
    ):
        found = chosen(side(here), side(there))
        assert paths(found) == ["events"]
        assert [f"Orders: it is Disabled at the {name}: " in each for each in found.refused] == [
            True
        ]


def test_a_topic_stays_with_a_subscription_that_cannot_come_back() -> None:
    """Its messages would come to the source in part."""
    found = chosen(side(ORDERS, audit=OFF), side(ORDERS))
    assert paths(found) == ["Orders"]
    assert found.refused[0].startswith("events/Subscriptions/audit: it is Disabled at the source")


def test_what_the_target_alone_has_is_counted_where_it_has_messages() -> None:
    """A subscription, and an entity of its own."""
    found = chosen(side(), side(extra=3))
    assert (found.stranded, found.is_in_part) == ({"events/Subscriptions/extra": 3}, True)
    assert paths(found) == ["events"]
    found = chosen(side(), side(extra=0))
    assert (found.stranded, found.is_in_part) == ({}, False)


def test_one_that_has_come_back_is_told_by_the_note_and_not_by_its_status() -> None:
    """Made anew at the target it is another one, which no run has copied."""
    off = replace(ORDERS, status=OFF)
    for there in (ORDERS, off):
        found = chosen(side(ORDERS), side(there), returned="orders")
        assert [each.path for each in found.returned] == ["Orders"]
        assert found.refused == []
    found = chosen(side(ORDERS), side(ORDERS), returned="orders", made=LATER)
    assert (found.returned, paths(found)) == ([], [])
    assert found.refused[0].startswith("orders: ")


def test_a_subscription_that_the_source_was_given_comes_back_with_its_topic() -> None:
    """No run has copied it, so all that the target has of it is new."""
    found = chosen(side(extra=0), side(extra=3), unrecorded=EXTRA.lower())
    assert (paths(found), found.refused, found.stranded) == (["events"], [], {})


def test_a_queue_that_was_made_behind_the_run_comes_back_if_the_source_has_it_and_if_asked() -> (
    None
):
    """One that the target had before is its own, and stays with its messages, which are counted."""
    both = side(ORDERS), side(ORDERS, counts={"orders": 2})
    found = chosen(*both, unrecorded="orders", since="orders")
    assert (paths(found), found.made_since, found.is_in_part) == (["events"], {"Orders": 2}, True)
    found = chosen(*both, unrecorded="orders", since="orders", returns=True)
    assert (paths(found), found.refused) == (["Orders", "events"], [])
    found = chosen(*both, unrecorded="orders", returns=True)
    assert (paths(found), found.kept, found.made_since) == (["events"], {"Orders": 2}, {})
    assert found.refused == ["orders: no run that has come to its end has copied it."]


def test_a_queue_that_needs_sessions_at_one_side_alone_does_not_come_back() -> None:
    """The source's was made behind the run with other properties."""
    there = replace(ORDERS, requires_session=True)
    found = chosen(side(ORDERS), side(there), unrecorded="orders", since="orders", returns=True)
    assert paths(found) == ["events"]
    assert found.refused[0].startswith("Orders: RequiresSession differs")


def test_what_is_at_both_sides_and_not_chosen_is_not_the_targets_alone() -> None:
    """It is read as the target of one that forwards."""
    both = side(ORDERS, OTHER), side(ORDERS, OTHER, counts={"other": 5})
    found = chosen(*both, meant={"orders"})
    assert (paths(found), found.stranded, found.is_in_part) == (["Orders"], {}, False)


def test_what_a_topic_left_at_the_target_is_counted_when_it_has_come_back() -> None:
    """Whether the source has a place for it by now, or not."""
    for here in (side(), side(extra=0)):
        found = chosen(here, side(extra=3), returned="events", unrecorded=EXTRA.lower())
        assert [each.path for each in found.returned] == ["events"]
        assert found.kept[EXTRA] == 3
        assert found.is_in_part


def test_a_refused_topic_counts_what_the_target_alone_has_of_it() -> None:
    """And what else it has."""
    there = side(audit=OFF, extra=3, counts={"events/subscriptions/audit": 2})
    found = chosen(side(), there)
    assert found.refused[0].startswith("events/Subscriptions/audit: it is Disabled at the target")
    assert (found.stranded, found.kept) == ({EXTRA: 3}, {"events/Subscriptions/audit": 2})


def test_a_rule_that_the_target_alone_has_is_named() -> None:
    """So is one that it has no more; other properties are told and are no part that is lost."""
    everything, vip = (model.Rule(name=name, filter=model.TrueFilter()) for name in ("all", "vip"))
    found = chosen(side(rules=(everything,)), side(rules=(everything, vip)))
    assert [(each.level, each.subject) for each in found.definitions] == [("loss", "Rules")]
    assert found.definitions[0].text.startswith("rule 'vip' is at the target alone")
    assert (paths(found), found.is_in_part) == (["events"], True)
    found = chosen(side(rules=(everything, vip)), side(rules=(everything,)))
    assert found.definitions[0].text.startswith("rule 'vip' is at the source alone")
    found = chosen(side(ORDERS), side(replace(ORDERS, max_delivery_count=5)))
    assert [each.text for each in found.definitions] == [
        "it is 5 at the target, and stays 10 at the source."
    ]
    assert not found.is_in_part
