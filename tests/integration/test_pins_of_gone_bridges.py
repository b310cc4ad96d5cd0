"""What transactions of a bridge have pinned at another one, when that bridge is killed.

It is free when it is known what was decided, and that takes seconds: nobody waits until the pin
would be over by itself, 150 s later.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Complete, Defer, Received, ReceiveMode
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door
from tests.integration.session_door import SessionClient, bodies, send
from tests.integration.test_transacted_states import ORDERS, state_of
from tests.integration.transacting import TransactionClient, member

WITHIN_S = 40.0
"""Less than the locks, which take 60 s."""


async def accept(door: Door, session_id: str) -> SessionClient:
    """Accept a session as soon as nobody has it."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await SessionClient(door).accept(session_id)
            except ServiceBusError:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("point", ["engine.commit.begun", "engine.commit.decided"])
async def test_a_session_is_free_when_its_transactions_bridge_is_killed(
    endpoint: Endpoint, broker: Broker, vhost: str, point: str
) -> None:
    """Another bridge owns its shard: it asks what was decided, and does that first."""
    async with member(endpoint, broker.management_url, ORDERS) as door:
        await SessionClient(door).accept("other")
        await send(door, "one", "a", "b")
        killed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.transacting"),
            *(broker.url_of(vhost), broker.management_url, "one"),
            env=dict(os.environ, BUSBRIDGE_FAILPOINT=point),
        )
        async with asyncio.timeout(120):
            assert await killed.wait() == -signal.SIGKILL
        client = await accept(door, "one")
        is_decided = point == "engine.commit.decided"
        assert await state_of(door) == (b"new" if is_decided else b"old")
        expected = ["b", "new"] if is_decided else ["a", "b"]
        assert bodies(await client.receive(2)) == expected
        await until(lambda: not door.namespace._pins)
        assert not door.namespace._watch._kept


async def test_a_session_is_free_when_a_bridge_has_left_before_it_commits(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Nothing was decided, so its messages come again in their order."""
    async with member(endpoint, broker.management_url, ORDERS) as door:
        await SessionClient(door).accept("other")
        await send(door, "one", "a", "b")
        async with member(endpoint, broker.management_url, with_sidecar=False) as leaving:
            await until(lambda: bool(leaving.namespace.directory.namespace.queues))
            client = await SessionClient(leaving).accept("one")
            (received,) = await client.receive()
            transaction = TransactionClient(leaving)
            await transaction.settle(received, Complete())
            await transaction.set_state("one", b"never")
        following = await accept(door, "one")
        assert await state_of(door) is None
        assert bodies(await following.receive(2)) == ["a", "b"]


async def test_a_deferred_message_is_free_when_its_transactions_bridge_has_left(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Another bridge has all deferred messages; nothing was decided about this one."""
    plain = model.Queue(name="orders", lock_duration_ms=60_000)
    async with member(endpoint, broker.management_url, plain) as door:

        async def deferred(door: Door, number: int) -> list[Received]:
            mode = ReceiveMode.PEEK_LOCK
            return await door.namespace.receive_deferred(door.path, [number], mode)

        await door.send("a", "b")
        for each in await door.client().receive(2):
            assert each.lock_token is not None
            await door.namespace.settle(door.path, each.lock_token, Defer())
        (_kept,) = await deferred(door, 1)
        async with member(endpoint, broker.management_url, with_sidecar=False) as leaving:
            await until(lambda: bool(leaving.namespace.directory.namespace.queues))
            (received,) = await deferred(leaving, 2)
            transaction = TransactionClient(leaving)
            await transaction.settle(received, Complete())
            assert len(door.namespace._pins) == 1

        async def is_free() -> bool:
            try:
                (again,) = await deferred(door, 2)
            except ServiceBusError:
                return False
            await door.complete(again)
            return True

        await until(is_free, within_s=WITHIN_S)
        assert not door.namespace._pins
