"""Rights that a running relay loses, between two gateways in memory: what becomes of its route."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bridge.access.access import Access
from bridge.gateway.server import Gateway
from bridge.model.access_policy import AccessPolicy
from bridge.model.access_rules import AccessRuleSet
from bridge.model.entity import AuthorizationRule
from bridge.relay.plan.route import OnRefused
from bridge.relay.running.status import RouteState
from tests.conformance.door import ROOT_RULE
from tests.conformance.remote import texts
from tests.conformance.served import gateway, queue_of
from tests.conformance.test_relay import bodies, count_in, fill, relaying
from tests.fixtures.waiting import until

MESSAGES = 20


def access_of(*rules: AuthorizationRule) -> AccessPolicy:
    """The rules of a namespace."""
    return AccessPolicy(AccessRuleSet(namespace=rules))


def without_rights(access: Access, served: Gateway) -> None:
    """Leave the relay's rule no right that it needs."""
    access.replace(access_of(replace(ROOT_RULE, rights=frozenset())))


def with_another_key(access: Access, served: Gateway) -> None:
    """Roll the key; what was proved with the former one lives as long as its connection."""
    access.replace(access_of(replace(ROOT_RULE, primary_key="rolled")))
    for each in list(served.connections):
        each.say_goodbye()


Loss = Callable[[Access, Gateway], None]
LOSSES = pytest.mark.parametrize("lose", [without_rights, with_another_key])


@LOSSES
@pytest.mark.parametrize(
    ("on_refused", "state"),
    [("stop", RouteState.STOPPED), ("dead-letter", RouteState.PAUSED)],
)
async def test_a_right_that_the_target_takes_away_is_the_routes_never_a_messages(
    lose: Loss, on_refused: OnRefused, state: RouteState
) -> None:
    """For `outage_s` the target is away; then the route stops, or is tried again.

    All that was in hand is given back: nothing is a dead letter, and no delivery is counted.
    """
    access = Access(AccessRuleSet(namespace=(ROOT_RULE,)))
    async with (
        gateway() as (source, from_port),
        gateway(access=access) as (target, to_port),
        relaying(from_port, to_port, outage_s=1.0, on_refused=on_refused) as relay,
    ):
        (status,) = relay.statuses
        await until(lambda: status.state is RouteState.RUNNING)
        lose(access, target)
        await fill(from_port, texts(MESSAGES))
        await until(lambda: status.state is RouteState.TARGET_AWAY)
        await until(lambda: status.state is state)
        assert "unauthorized" in status.last_error.lower()
        assert any("orders" in each for each in relay.reasons)
        await until(lambda: count_in(source) == MESSAGES)
        assert not queue_of(source).locked
        assert {each.delivery_count for each in queue_of(source).active} == {0}
        assert not count_in(target)
        assert status.refused == 0
        access.replace(access_of(ROOT_RULE))
        if state is RouteState.PAUSED:
            await until(lambda: count_in(target) == MESSAGES)
            await until(lambda: status.state is RouteState.RUNNING)
            assert sorted(await bodies(to_port), key=int) == [str(each) for each in range(MESSAGES)]
            assert not count_in(source)
        assert await bodies(from_port, "q/$DeadLetterQueue") == []


@LOSSES
async def test_a_right_that_the_source_takes_away_pauses_the_route(lose: Loss) -> None:
    """It says which, and goes on by itself when it has the right again; nothing is lost."""
    access = Access(AccessRuleSet(namespace=(ROOT_RULE,)))
    async with (
        gateway(access=access) as (source, from_port),
        gateway() as (_, to_port),
        relaying(from_port, to_port, outage_s=1.0) as relay,
    ):
        (status,) = relay.statuses
        await until(lambda: status.state is RouteState.RUNNING)
        await fill(from_port, texts(MESSAGES))
        await until(lambda: status.relayed == MESSAGES and not queue_of(source).locked)
        lose(access, source)
        await until(lambda: "The source azure/q" in status.last_error)
        assert status.state is RouteState.PAUSED
        assert "unauthorized" in status.last_error.lower()
        access.replace(access_of(ROOT_RULE))
        await fill(from_port, texts(MESSAGES))
        await until(lambda: status.relayed == 2 * MESSAGES)
        assert status.state is RouteState.RUNNING
        assert not relay.reasons
        await until(lambda: not count_in(source) and not queue_of(source).locked)
        assert len(await bodies(to_port)) == 2 * MESSAGES
