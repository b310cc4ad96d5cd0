"""RabbitMQ's consumer timeout (30 minutes as delivered) against locks that are renewed for longer.

Here it is 3 s long, so that nobody waits for half an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bridge.broker.connection.endpoint import parse_url
from bridge.engine.api import Defer, Received, ReceiveMode
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

pytestmark = pytest.mark.long

TIMEOUT_MS = 3_000
HELD_MS = 4 * TIMEOUT_MS
QUEUE = model.Queue(name="orders", lock_duration_ms=5_000)


async def impatient(broker: Broker) -> None:
    """Give RabbitMQ a short consumer timeout, for channels that are opened from now on."""
    assert broker.node is not None
    for setting in (f"consumer_timeout, {TIMEOUT_MS}", "channel_tick_interval, 500"):
        code = f"application:set_env(rabbit, {setting})."
        await asyncio.to_thread(broker.node.rabbitmqctl, "eval", code)


async def hold(door: Door, *messages: Received) -> None:
    """Renew locks until well after the timeout."""
    tokens = [each.lock_token for each in messages if each.lock_token is not None]
    end_ms = now_ms() + HELD_MS
    while now_ms() < end_ms:
        await door.namespace.renew_locks(door.path, tokens)
        await asyncio.sleep(0.5)


async def test_a_lock_is_renewed_past_the_consumer_timeout(
    start_broker: Callable[[], Broker],
) -> None:
    """The queues have a timeout of their own."""
    broker = await asyncio.to_thread(start_broker)
    await impatient(broker)
    async with open_door(parse_url(broker.url_of("/")), broker.management_url, QUEUE) as door:
        await door.send("deferred", "active")
        client = door.client()
        first, active = await client.receive(2)
        assert first.lock_token is not None
        await door.namespace.settle(door.path, first.lock_token, Defer())
        (deferred,) = await door.namespace.receive_deferred(
            door.path, [first.sequence_number], ReceiveMode.PEEK_LOCK
        )
        await hold(door, active, deferred)
        await door.complete(active, deferred)
        assert door.namespace.findings == ()


async def test_what_waits_for_nobody_s_settlement_outlives_the_timeout(
    start_broker: Callable[[], Broker],
) -> None:
    """Numbers are given and deferred messages found, however long nothing has happened."""
    broker = await asyncio.to_thread(start_broker)
    await impatient(broker)
    async with open_door(parse_url(broker.url_of("/")), broker.management_url, QUEUE) as door:
        await door.send("a", "b")
        client = door.client()
        first, second = await client.receive(2)
        for each in (first, second):
            assert each.lock_token is not None
            await door.namespace.settle(door.path, each.lock_token, Defer())
        (found,) = await door.namespace.receive_deferred(door.path, [1], ReceiveMode.PEEK_LOCK)
        await door.complete(found)
        await asyncio.sleep(HELD_MS / 1000)
        await door.send("c")
        (third,) = await client.receive(1)
        assert (third.record.body, third.sequence_number) == (b"c", 3)

        async def is_found() -> bool:
            (found,) = await door.namespace.receive_deferred(door.path, [2], ReceiveMode.PEEK_LOCK)
            await door.complete(found)
            return True

        await until(is_found)
        await door.complete(third)
