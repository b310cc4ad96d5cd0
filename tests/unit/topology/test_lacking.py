"""What a live RabbitMQ lacks, whose it is, and whether the journal alone may have messages."""

from __future__ import annotations

from dataclasses import replace

from bridge.model import entity as model
from bridge.topology import names
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.definitions import entities
from bridge.topology.diff import declarations
from bridge.topology.lacking import SHARED, Lack, lacking
from bridge.topology.resources import Binding, Topology

EVENTS = model.Topic(
    name="events", subscriptions=(model.Subscription(topic="events", name="audit"),)
)
NAMESPACE = model.Namespace(queues=(model.Queue(name="orders"),), topics=(EVENTS,))
WHOLE = compile_namespace(NAMESPACE, Capabilities.of("4.3.6"))
ACTIVE = names.active_exchange("orders")


def without(*gone: str) -> Topology:
    """RabbitMQ without these exchanges and queues, and all that is bound to them."""
    return replace(
        WHOLE,
        exchanges=tuple(each for each in WHOLE.exchanges if each.name not in gone),
        queues=tuple(each for each in WHOLE.queues if each.name not in gone),
        bindings=tuple(
            each
            for each in WHOLE.bindings
            if each.source not in gone and each.destination not in gone
        ),
    )


def unbound(source: str, destination: str) -> Topology:
    """RabbitMQ without the bindings between two that are there."""
    ends = source, destination
    bindings = [each for each in WHOLE.bindings if (each.source, each.destination) != ends]
    return replace(WHOLE, bindings=tuple(bindings))


def found(live: Topology) -> list[Lack]:
    """What is missing."""
    bases = {names.resource_base(each.path): each.path for each in entities(NAMESPACE)}
    wanted, there = [(*each.exchanges, *each.queues, *each.bindings) for each in (WHOLE, live)]
    return lacking(bases, declarations(wanted, there))


def test_a_topics_journal_is_bound_when_all_subscriptions_are() -> None:
    """A message in the journal counts as published."""
    from_active = [
        each.destination for each in WHOLE.bindings if each.source.endswith(names.ACTIVE_SUFFIX)
    ]
    assert from_active[-1] == names.journal("events")
    assert from_active.index(names.active_queue("orders")) < from_active.index(
        names.journal("orders")
    )


def test_nothing_is_missing_where_all_is_there() -> None:
    """Also beside resources of others."""
    theirs = Binding(source=ACTIVE, destination="theirs")
    assert found(replace(WHOLE, bindings=(*WHOLE.bindings, theirs))) == []


def test_what_is_missing_has_the_path_of_its_entity() -> None:
    """A subscription's own binding is the subscription's, shared ones nobody's."""
    audit = names.active_queue("events/subscriptions/audit")
    assert {each.path for each in found(without(audit))} == {"events/Subscriptions/audit"}
    assert {each.path for each in found(without(names.inbox("orders")))} == {"orders"}
    assert SHARED in {each.path for each in found(without(names.SINK))}
    dead = names.dead_letter_queue("orders")
    assert {each.path for each in found(unbound(names.OTHER_DEATHS, dead))} == {"orders"}


def test_the_journal_alone_may_have_messages_only_where_rabbitmq_confirmed_them() -> None:
    """The leader of a queue looks for the queue; without a journal there is nothing in it.

    Without the exchange a publish fails, but its binding may have been deleted before.
    """
    (binding,) = found(unbound(ACTIVE, "orders"))
    assert (binding.is_route, binding.is_silent) == (True, True)
    assert any(each.is_silent for each in found(without(ACTIVE)))
    for gone in (names.journal("orders"), names.active_queue("orders")):
        lacks = found(without(gone))
        assert any(each.is_route for each in lacks)
        assert not any(each.is_silent for each in lacks)
    audit = names.active_queue("events/subscriptions/audit")
    assert any(each.is_silent for each in found(without(audit)))


def test_other_arguments_are_a_conflict() -> None:
    """They stay as they are."""
    moved = names.moved("orders")
    theirs = tuple(
        replace(each, arguments=each.arguments | {"x-max-age": "1D"})
        if each.name == moved
        else each
        for each in WHOLE.queues
    )
    (lack,) = found(replace(WHOLE, queues=theirs))
    assert moved in lack.name
    assert "x-max-age" in lack.conflict
