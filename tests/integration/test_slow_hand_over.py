"""A leader hands its inbox over to another bridge while RabbitMQ's confirms come late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.model.entity import Tier
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import LeaderState, TermOver
from bridge.sidecar.leader.orderly_end import PAUSE_MIN_S
from bridge.sidecar.shared_connection import SharedConnection
from tests.fixtures.relay import Relay
from tests.fixtures.sidecar import Rig
from tests.fixtures.waiting import until

MakeRig = Callable[..., Rig]

DELAY_S = PAUSE_MIN_S + 0.5
"""Each way."""

WHY = "another bridge is to lead"


@pytest.mark.long
async def test_what_is_completed_during_a_slow_hand_over_is_not_received_again(
    rig: MakeRig, connection: Connection, shared: SharedConnection
) -> None:
    """Its queue has it, and a receiver completes it, before its leader has the confirm.

    The leader gives no more numbers, waits for the confirm, and says meanwhile in health for what
    it waits. The next one numbers what was sent meanwhile, and publishes nothing again.
    """
    orders = rig()
    with Relay(orders.url) as relay:
        slow = await Connection.open(parse_url(relay.url), name="slow")
        theirs = SharedConnection(slow)
        await theirs.open()
        state = LeaderState(orders.queue, Tier.STANDARD)
        first = Leader(state, slow, theirs)
        ending = asyncio.create_task(first.run())
        orders.send(b"begun")
        assert [each.number for each in await asyncio.to_thread(orders.take, 1)] == [1]
        await until(lambda: not first.in_flight.open)
        second = Leader(LeaderState(orders.queue, Tier.STANDARD), connection, shared)
        living = asyncio.create_task(second.run())

        relay.delay_s = DELAY_S
        orders.send(b"once")
        (seen,) = await asyncio.to_thread(orders.take, 1)
        assert first.in_flight.open, "it has no confirm yet"
        first.leave(WHY)
        orders.send(b"meanwhile")
        told: set[str] = set()

        async def is_told() -> bool:
            told.update(state.waits.sentences())
            return any(WHY in each for each in told)

        await until(is_told)
        await until(lambda: second.is_ready)
        with pytest.raises(TermOver, match=WHY):
            await ending
        relay.delay_s = 0.0
        await slow.close()
    orders.send(b"last")
    rest = await asyncio.to_thread(orders.take, 2)

    assert (seen.body, seen.number) == (b"once", 2)
    assert [(each.body, each.number) for each in rest] == [(b"meanwhile", 3), (b"last", 4)]
    assert orders.is_empty()
    await second.stop()
    await living
