"""A plan: what it says to people, and in which order it acts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from bridge.model import entity as model
from bridge.topology import compiler, definitions
from bridge.topology.capabilities import Capabilities
from bridge.topology.diff import Action
from bridge.topology.plain import compile_plain
from bridge.topology.resources import Binding, Exchange, Queue, Topology
from policies import plan, plan_text
from policies.plan import Plan
from policies.writers.definitions import document
from tests.fixtures.examples import examples
from tests.unit.topology.entities import namespaces

TARGET = Capabilities.of("4.3")


def compiled(namespace: model.Namespace, *, is_plain: bool = False) -> Topology:
    """A namespace as `apply` wants it."""
    if is_plain:
        return compile_plain(namespace, TARGET)
    topology = compiler.compile(namespace, TARGET)
    return replace(topology, parameters=definitions.parameters(namespace, "/"))


def between(
    before: model.Namespace, after: model.Namespace, *, is_plain: bool = False, **more: list[object]
) -> Plan:
    """The plan for a broker that is as `before`; `more` is somebody else's."""
    export = document(compiled(before, is_plain=is_plain), "/")
    for part, rows in more.items():
        export.setdefault(part, []).extend(rows)  # type: ignore[arg-type]
    return plan.make(compiled(after, is_plain=is_plain), json.loads(json.dumps(export)), "/")


def orders(**fields: object) -> model.Namespace:
    """A namespace of one queue."""
    return model.Namespace(queues=(model.Queue(name="orders", **fields),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "is_plain", "sentence"),
    [
        (
            {"default_message_time_to_live_ms": 60_000},
            {"default_message_time_to_live_ms": 30_000},
            False,
            "orders: message-ttl changes: messages that are queued already keep the TTL with which "
            "they came, only later ones get the new one.",
        ),
        ({"max_delivery_count": 9}, {"max_delivery_count": 2}, False, "delivery-limit falls: "),
        ({"max_size_mb": 2048}, {"max_size_mb": 1024}, False, "max-length-bytes falls: nothing "),
        ({}, {"auto_delete_on_idle_ms": 300_000}, True, "expires changes: it counts from "),
    ],
)
def test_what_happens_to_queued_messages_is_said(
    before: dict[str, object], after: dict[str, object], is_plain: bool, sentence: str
) -> None:
    """For each setting that a change can surprise somebody with."""
    made = between(orders(**before), orders(**after), is_plain=is_plain)
    assert any(sentence in note for note in made.notes), made.notes
    assert sentence in plan_text.text(made)


@pytest.mark.parametrize(
    ("before", "after"),
    [({"max_delivery_count": 2}, {"max_delivery_count": 9}), ({"max_size_mb": 1024}, {})],
)
def test_nothing_is_said_when_no_message_can_be_surprised(
    before: dict[str, object], after: dict[str, object]
) -> None:
    """A limit that rises, or nothing."""
    assert between(orders(**before), orders(**after)).notes == ()


def test_colours_show_what_comes_and_goes_and_are_a_terminals_only() -> None:
    """Green for new, yellow for changed, red for gone; the same words without colours."""
    before = model.Namespace(
        queues=(
            model.Queue(name="old"),
            model.Queue(name="same", default_message_time_to_live_ms=1_000),
        )
    )
    after = model.Namespace(
        queues=(
            model.Queue(name="new"),
            model.Queue(name="same", default_message_time_to_live_ms=1_000, user_metadata="x"),
        )
    )
    made = between(before, after)
    text, coloured = plan_text.text(made), plan_text.text(made, is_coloured=True)
    assert "\x1b" not in text
    assert "\x1b[32m+ queue new (quorum)\x1b[0m" in coloured
    assert "\x1b[31m- queue old (quorum) (destructive): its messages go with it\x1b[0m" in coloured
    assert "\x1b[33m~ definition busbridge.entity.%2F:same\x1b[0m" in coloured
    assert '\x1b[32m    + userMetadata: "x"\x1b[0m' in coloured


def test_keys_of_access_rules_are_never_shown() -> None:
    """Neither old ones nor new ones."""

    def rule(key: str) -> model.AuthorizationRule:
        return model.AuthorizationRule(
            name="app", rights=frozenset({model.Right.SEND}), primary_key=key
        )

    made = between(
        orders(authorization_rules=(rule("old-secret"),)),
        orders(authorization_rules=(rule("new-secret"),)),
    )
    assert [change.action for change in made.changes] == [Action.UPDATE]
    assert "secret" not in plan_text.text(made, shows_queues=True)


def test_a_policy_of_equal_priority_is_named_beside_ours() -> None:
    """RabbitMQ takes either: nobody can say which."""
    theirs = {
        "vhost": "/",
        "name": "theirs",
        "pattern": "^ord",
        "apply-to": "queues",
        "definition": {"max-length": 1},
        "priority": 50,
    }
    made = between(orders(), orders(), policies=[theirs])
    assert not made.is_empty
    assert (
        "orders: busbridge.limit-9.size-1073741824 (priority 50) or theirs (priority 50) instead of"
        in plan_text.text(made)
    )


@settings(max_examples=examples(60), deadline=None)
@given(namespaces(), namespaces())
def test_the_order_of_the_steps_strands_no_message(
    before: model.Namespace, after: model.Namespace
) -> None:
    """Nothing is deleted before all that is new is there, a binding before its ends."""
    made = between(before, after)
    kinds = [(change.action, type(change.resource)) for change in made.changes]
    creates = [i for i, (action, _) in enumerate(kinds) if action is Action.CREATE]
    objects = (Queue, Exchange, Binding)
    deletes = [i for i, (a, kind) in enumerate(kinds) if a is Action.DELETE and kind in objects]
    new = [i for i in creates if kinds[i][1] in objects]
    assert not new or not deletes or max(new) < min(deletes)
    made_so_far: set[str] = set()
    to_make = {
        change.resource.name
        for change in made.changes
        if change.action is Action.CREATE and isinstance(change.resource, Queue | Exchange)
    }
    for change in made.changes:
        if isinstance(change.resource, Binding) and change.action is Action.CREATE:
            ends = {change.resource.source, change.resource.destination}
            assert ends & to_make <= made_so_far
        elif isinstance(change.resource, Queue | Exchange):
            made_so_far.add(change.resource.name)


def theirs(pattern: str, **definition: object) -> dict[str, object]:
    """A policy of somebody else's, of the lowest priority."""
    return {
        "vhost": "/",
        "name": "theirs",
        "pattern": pattern,
        "apply-to": "queues",
        "definition": {key.replace("_", "-"): value for key, value in definition.items()},
        "priority": 0,
    }


def operator(pattern: str, **definition: object) -> dict[str, object]:
    """An operator policy of somebody else's."""
    value = theirs(pattern, **definition)
    return {
        "vhost": value.pop("vhost"),
        "name": value.pop("name"),
        "component": "operator_policy",
        "value": value,
    }


def test_a_catch_all_is_named_where_no_policy_of_ours_is_above_it() -> None:
    """Its TTL would be that of an inbox; below ours it is in force on no queue of ours."""
    theirs_ = theirs(".*", message_ttl=60_000)
    assert between(orders(), orders(), policies=[theirs_]).is_empty
    above = between(orders(), orders(), policies=[theirs_ | {"priority": 2_000}])
    said = plan_text.text(above)
    assert "orders/$inbox: theirs (priority 2000) instead of busbridge.inner" in said
    assert "  orders: theirs (priority 2000) instead of" in said


def test_a_catch_all_that_touches_no_message_is_left_in_peace() -> None:
    """A place for leaders, say."""
    rows = [theirs(".*", queue_leader_locator="balanced")]
    assert between(orders(), orders(), policies=rows).is_empty


def test_a_lower_limit_of_an_operator_is_named() -> None:
    """A limit above ours changes nothing."""
    made = between(orders(), orders(), parameters=[operator("^orders$", delivery_limit=3)])
    ours = "busbridge.limit-9.size-1073741824 (priority 50)"
    both = f"orders: {ours} and operator policy theirs (priority 0) instead of {ours}\n"
    assert both in plan_text.text(made)
    higher = [operator("^orders$", delivery_limit=30)]
    assert between(orders(), orders(), parameters=higher).is_empty


def test_both_names_of_an_entity_are_shown_in_a_plan() -> None:
    """RabbitMQ's, and how Service Bus spells it."""
    after = model.Namespace(queues=(model.Queue(name="Orders"), model.Queue(name="other")))
    made = between(model.Namespace(), after)
    made = replace(made, names=plan.display_names(after))
    said = plan_text.text(made, shows_queues=True)
    assert "+ queue orders (quorum) of Orders\n" in said
    assert "+ queue orders/$deadletterqueue (quorum) of Orders\n" in said
    assert "+ definition busbridge.entity.%2F:orders of Orders\n" in said
    assert "  orders of Orders: busbridge." in said
    assert "+ queue other (quorum)\n" in said


def test_one_of_a_thing_is_not_many() -> None:
    """`1 queue`, `2 queues`, `1,204 messages`."""
    numbers = [(1, "1 queue"), (2, "2 queues"), (0, "0 queues"), (1204, "1,204 queues")]
    assert [plan_text.counted(number, "queue") for number, _ in numbers] == [
        said for _, said in numbers
    ]
    assert plan_text.counted(2, "loss", "losses") == "2 losses"
