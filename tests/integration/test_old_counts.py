"""Queues that tell counts of before a kill of RabbitMQ hide nothing from who looks at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import DeadLetter
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from bridge.model.errors import ServerBusy
from bridge.model.name import EntityPath
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.old_counts import OldCounts
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

COUNT = 5
ORDERS = model.Queue(name="orders", lock_duration_ms=300_000)
DEAD = names.dead_letter_queue(ORDERS.name)
HOUR_MS = 3_600_000

OLD_S = 1.0
"""How long each connection shows old counts: RabbitMQ was seen to for 0.9 s."""


@pytest.fixture
def wire(endpoint: Endpoint) -> Iterator[OldCounts]:
    """The wire between the bridge that looks and RabbitMQ."""
    wire = OldCounts(endpoint.hosts[0][1], for_s=OLD_S)
    yield wire
    wire.close()


@pytest.fixture
def behind(endpoint: Endpoint, wire: OldCounts) -> Endpoint:
    """RabbitMQ at the wire's other end."""
    return replace(endpoint, hosts=(("127.0.0.1", wire.port),))


async def shown(door: Door, path: EntityPath) -> list[int]:
    """Return the numbers that a peek shows."""
    return [each.sequence_number for each in await door.namespace.peek(path, 0, 250)]


async def all_are_shown(door: Door) -> bool:
    """Whether all messages have their numbers."""
    return len(await shown(door, door.path)) == COUNT


async def answered(door: Door) -> list[int]:
    """Return the numbers that the first peek shows that is not refused."""
    while True:
        with contextlib.suppress(ServerBusy):
            return await shown(door, door.path)


async def settle_all(door: Door, how: Any) -> None:
    """Receive the messages, and settle them in the same way."""
    client = door.client()
    for each in await client.receive(COUNT):
        assert each.lock_token is not None
        await door.namespace.settle(door.path, each.lock_token, how)
    await client.receiver.close()


@pytest.mark.parametrize("old", [0, 2])
async def test_a_first_peek_shows_all_active_messages(
    endpoint: Endpoint, behind: Endpoint, wire: OldCounts, broker: Broker, old: int
) -> None:
    """Two equal counts that are too low say nothing while they may be old."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*(str(each) for each in range(COUNT)))
        await until(lambda: all_are_shown(door))
    wire.show(ORDERS.name, old, 0)
    async with open_door(behind, broker.management_url, with_sidecar=False) as looking:
        await looking.namespace.directory.read()
        assert len(await shown(looking, looking.path)) == COUNT
        assert wire.told


@pytest.mark.parametrize("old", [0, 2])
async def test_a_first_peek_shows_all_dead_letters(
    endpoint: Endpoint, behind: Endpoint, wire: OldCounts, broker: Broker, old: int
) -> None:
    """Two counts that are too low say nothing while they may be old."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*(str(each) for each in range(COUNT)))
        await settle_all(door, DeadLetter(reason="bad"))
    wire.show(DEAD, old, 0)
    async with open_door(behind, broker.management_url, with_sidecar=False) as looking:
        await looking.namespace.directory.read()
        assert len(await shown(looking, looking.dead_letters)) == COUNT
        assert wire.told


async def test_a_peek_that_nobody_leads_does_not_say_that_nothing_is_scheduled(
    endpoint: Endpoint, behind: Endpoint, wire: OldCounts, broker: Broker
) -> None:
    """A bucket that may have messages is none that is empty."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.namespace.send(door.path, [outgoing("later", scheduled_ms=now_ms() + HOUR_MS)])
        await until(lambda: shown(door, door.path))
        (bucket,) = await door.management.queues_below(names.bucket_prefix(ORDERS.path))
    wire.show(bucket, 0, 0)
    async with open_door(behind, broker.management_url, with_sidecar=False) as unled:
        await unled.namespace.directory.read()
        first = asyncio.ensure_future(answered(unled))
        await until(lambda: wire.told)
        async with open_door(endpoint, broker.management_url, ORDERS):
            assert len(await first) == 1


async def test_a_batch_delete_deletes_all(
    endpoint: Endpoint, behind: Endpoint, wire: OldCounts, broker: Broker
) -> None:
    """A count of 0 is no end of the queue while it may be an old one."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*(str(each) for each in range(COUNT)))
        await until(lambda: all_are_shown(door))
    wire.show(ORDERS.name, 0, 0)
    async with open_door(behind, broker.management_url, with_sidecar=False) as deleting:
        await deleting.namespace.directory.read()
        delete = deleting.namespace.delete_messages
        assert await delete(deleting.path, COUNT, now_ms() + HOUR_MS) == COUNT
