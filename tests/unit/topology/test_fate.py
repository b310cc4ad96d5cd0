"""Which changes can end with fewer messages than before, and which cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from bridge.model import entity as model
from bridge.topology import compiler
from bridge.topology.capabilities import Capabilities
from bridge.topology.diff import Change, diff, marked, removal
from bridge.topology.plain import compile_plain
from bridge.topology.resources import Binding, Exchange, Policy, Queue, Topology
from tests.unit.topology.entities import namespaces

RABBITMQ = Capabilities.of("4.3")
KEEPER = Queue(name="dead", arguments={"x-queue-type": "quorum"})
THEIRS = Queue(name="theirs", arguments={"x-queue-type": "quorum"})
LOG = Queue(name="theirs", arguments={"x-queue-type": "stream"})


def ours(**definition: object) -> Policy:
    """A policy of ours on the queue."""
    settings: dict[str, Any] = {key.replace("_", "-"): v for key, v in definition.items()}
    return Policy(name="busbridge.x", pattern="^theirs$", definition=settings, priority=50)


def destructive(
    before: Policy | None, after: Policy | None, queue: Queue = THEIRS, *more: Policy
) -> list[Change]:
    """The steps with which messages can be lost."""
    live = Topology(
        queues=(queue, KEEPER), policies=(*more, *((before,) if before is not None else ()))
    )
    wanted = Topology(queues=(queue, KEEPER), policies=(after,) if after is not None else ())
    return [each for each in marked(diff(wanted, live), live) if each.is_destructive]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"expires": 300_000}),
        ({"expires": 600_000}, {"expires": 300_000}),
        ({}, {"message_ttl": 1_000}),
        ({"message_ttl": 2_000}, {"message_ttl": 1_000}),
        ({}, {"delivery_limit": 3}),
        ({}, {"max_length": 3}),
        ({"max_length_bytes": 9}, {"max_length_bytes": 3}),
        ({"max_length": 3, "overflow": "reject-publish"}, {"max_length": 3}),
        (
            {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"},
            {"queue_leader_locator": "balanced"},
        ),
    ],
)
@pytest.mark.parametrize("was_ours", [True, False])
def test_a_setting_that_can_cost_messages_is_destructive(
    before: dict[str, object], after: dict[str, object], was_ours: bool
) -> None:
    """Whether a policy of ours ruled the queue, one of somebody else's, or none."""
    old = ours(**before)
    if not was_ours:
        old = replace(old, name="theirs", priority=1)
    more = () if was_ours else (old,)
    (change,) = destructive(old if was_ours else None, ours(**after), THEIRS, *more)
    assert change.stakes == ("theirs",)
    assert change.reason


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"expires": 300_000}, {"expires": 600_000}),
        ({"expires": 300_000}, {"delivery_limit": 3, "dead_letter_exchange": ""}),
        ({"message_ttl": 1_000}, {"message_ttl": 2_000}),
        ({}, {"max_length": 3, "overflow": "reject-publish"}),
        ({"max_length": 3}, {"max_length": 3, "overflow": "reject-publish"}),
        ({}, {"message_ttl": 5, "dead_letter_exchange": "", "dead_letter_routing_key": "dead"}),
        ({"max_length": 3}, {"max_length": 4}),
    ],
)
def test_what_keeps_every_message_is_not_destructive(
    before: dict[str, object], after: dict[str, object]
) -> None:
    """A limit that rises, a full queue that refuses, dead letters that are kept."""
    assert destructive(ours(**before), ours(**after)) == []


def test_a_new_queue_has_nothing_to_lose() -> None:
    """Its policy is there first."""
    wanted = Topology(queues=(THEIRS,), policies=(ours(expires=300_000),))
    assert not any(each.is_destructive for each in marked(diff(wanted, Topology()), Topology()))


def test_a_ceiling_endangers_a_users_own_queue() -> None:
    """It takes every queue; a full one drops its oldest."""
    ceiling = replace(
        ours(max_length_bytes=5), name="busbridge.ceiling", pattern="^[^$]+$", is_operator=True
    )
    (change,) = destructive(None, ceiling)
    assert {*change.stakes} == {"dead", "theirs"}


def test_a_stream_that_forgets_earlier_is_endangered() -> None:
    """There is nothing that it could refuse."""
    assert destructive(None, ours(max_age="1h"), LOG)
    assert destructive(None, ours(max_length_bytes=5, overflow="reject-publish"), LOG)
    assert not destructive(None, ours(message_ttl=5), LOG)


def test_expired_messages_that_are_no_longer_kept_are_at_stake() -> None:
    """The step is the binding that leads them to nowhere, with the bridge and without it."""
    for compile_namespace in (compiler.compile, compile_plain):
        keeping, dropping = (
            compile_namespace(
                model.Namespace(
                    queues=(model.Queue(name="orders", dead_lettering_on_message_expiration=kept),)
                ),
                RABBITMQ,
            )
            for kept in (True, False)
        )
        found = [c for c in marked(diff(dropping, keeping), keeping) if c.is_destructive]
        assert [type(each.resource) for each in found] == [Binding]
        assert found[0].stakes == ("orders",)
        assert not any(c.is_destructive for c in marked(diff(keeping, dropping), dropping))


def test_a_dead_letter_exchange_that_is_not_there_keeps_nothing() -> None:
    """Nor does one to which nothing is bound."""
    lost = ours(dead_letter_exchange="nowhere")
    kept = ours(dead_letter_exchange="", dead_letter_routing_key="dead")
    assert destructive(kept, lost)
    live = Topology(
        queues=(THEIRS, KEEPER),
        exchanges=(Exchange(name="nowhere", type="fanout"),),
        bindings=(Binding(source="nowhere", destination="dead"),),
        policies=(kept,),
    )
    wanted = replace(live, policies=(lost,))
    assert not any(each.is_destructive for each in marked(diff(wanted, live), live))


@settings(max_examples=20, deadline=None)
@given(namespaces(), namespaces())
def test_two_namespaces_side_by_side_endanger_nothing(
    one: model.Namespace, two: model.Namespace
) -> None:
    """From nothing to either, and to the same again; removing everything is marked as a whole."""
    for namespace in (one, two):
        wanted = compiler.compile(namespace, RABBITMQ)
        assert not any(e.is_destructive for e in marked(diff(wanted, Topology()), Topology()))
        going = {each.resource.name for each in removal(wanted) if isinstance(each.resource, Queue)}
        assert going == {queue.name for queue in wanted.queues}
