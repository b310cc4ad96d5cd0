"""Deferred messages of a session: they are locked as long as the session is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Complete, Defer, Received, ReceiveMode
from bridge.model import entity as model
from bridge.model.errors import MessageLockLost, ServiceBusError
from tests.fixtures.broker import Broker
from tests.integration.door import WAIT_S, Door, open_door
from tests.integration.session_door import PATH, SessionClient, send

LOCK_S = 10
QUEUE = model.Queue(name="orders", requires_session=True, lock_duration_ms=LOCK_S * 1000)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with a queue that requires sessions, of short locks."""
    async with open_door(endpoint, broker.management_url, QUEUE) as opened:
        yield opened


async def deferred(door: Door, session_id: str) -> tuple[SessionClient, int]:
    """Accept a session and defer a message of it; returns its number."""
    await send(door, session_id, "1")
    client = await SessionClient(door).accept(session_id)
    (message,) = await client.receive()
    await client.settle(message, Defer())
    return client, message.sequence_number


async def again(door: Door, session_id: str, number: int) -> Received:
    """Receive a deferred message as soon as it is there."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                found = await door.namespace.receive_deferred(
                    PATH, [number], ReceiveMode.PEEK_LOCK, session_id
                )
            except ServiceBusError:
                await asyncio.sleep(0.02)
                continue
            return found[0]


async def test_it_is_free_as_soon_as_the_session_is(door: Door) -> None:
    """Uncounted, and under its earlier token nothing can be done."""
    client, number = await deferred(door, "a")
    first = await again(door, "a", number)
    await client.close()
    await SessionClient(door).accept("a")
    second = await again(door, "a", number)
    assert second.delivery_count == first.delivery_count
    with pytest.raises(MessageLockLost):
        await client.settle(first, Complete())
    await client.settle(second, Complete())


@pytest.mark.long
async def test_it_is_locked_as_long_as_the_session_is(door: Door) -> None:
    """Counted when that lock ends, though it was received later; renewed with it."""
    loop = asyncio.get_running_loop()
    (ends, of_ends), (stays, of_stays) = await deferred(door, "a"), await deferred(door, "b")
    await asyncio.sleep(LOCK_S * 0.6)
    first, kept = await again(door, "a", of_ends), await again(door, "b", of_stays)
    await door.namespace.renew_session_lock(PATH, "b")
    kept_s = loop.time()
    await ends.wait_for_loss()
    since_s = loop.time()
    await SessionClient(door).accept("a")
    second = await again(door, "a", of_ends)
    assert loop.time() - since_s < LOCK_S * 0.55
    assert second.delivery_count == first.delivery_count + 1
    await door.namespace.renew_session_lock(PATH, "b")
    await asyncio.sleep(kept_s + LOCK_S + 0.2 - loop.time())
    await stays.settle(kept, Complete())
