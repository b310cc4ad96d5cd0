"""A peek while nobody leads an entity: only a leader knows what is scheduled."""

from __future__ import annotations

import asyncio
import os

import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.bridges import Bridges
from bridge.engine.clock import now_ms
from bridge.engine.scheduled_numbers import LED_WITHIN_S
from bridge.model import entity as model
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

ORDERS = model.Queue(name="orders")
HOUR_MS = 3_600_000
BEFORE_S = 1.0


async def peeked(door: Door) -> list[bytes]:
    """The bodies that a peek shows."""
    return [each.record.body for each in await door.namespace.peek(door.path, 1, 10)]


async def test_it_waits_for_the_next_leader_and_shows_what_is_scheduled(
    endpoint: Endpoint, broker: Broker
) -> None:
    """It never answers without: who looks for the message would take it for cancelled."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.namespace.send(door.path, [outgoing("later", scheduled_ms=now_ms() + HOUR_MS)])
        await until(lambda: peeked(door))
    async with open_door(endpoint, broker.management_url, ORDERS, with_sidecar=False) as unled:
        peek = asyncio.ensure_future(peeked(unled))
        await asyncio.sleep(BEFORE_S)
        assert not peek.done()
        async with open_door(endpoint, broker.management_url, ORDERS):
            assert await peek == [b"later"]


async def test_a_bridge_that_is_gone_does_not_lead(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be listed for a moment: that it tells nothing does not mean that there is nothing."""
    listed = Bridges.others

    async def and_a_gone_one(bridges: Bridges) -> list[bytes]:
        return [*await listed(bridges), os.urandom(16)]

    monkeypatch.setattr(Bridges, "others", and_a_gone_one)
    await test_it_waits_for_the_next_leader_and_shows_what_is_scheduled(endpoint, broker)


async def test_what_a_leader_still_holds_is_not_said_to_be_none(
    endpoint: Endpoint, broker: Broker, connection: Connection
) -> None:
    """A leader was killed, and RabbitMQ has not taken back what it held: no count has it."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.namespace.send(door.path, [outgoing("later", scheduled_ms=now_ms() + HOUR_MS)])
        await until(lambda: peeked(door))
        (bucket,) = await door.management.queues_below(names.bucket_prefix(ORDERS.path))
    async with open_door(endpoint, broker.management_url, ORDERS, with_sidecar=False) as unled:
        held: list[Delivery] = []
        channel = await connection.channel()
        await channel.consumers.consume(bucket, held.append)
        await until(lambda: held)
        peek = asyncio.ensure_future(peeked(unled))
        await asyncio.sleep(BEFORE_S)
        assert not peek.done()
        await channel.close()
        async with open_door(endpoint, broker.management_url, ORDERS):
            assert await peek == [b"later"]


async def test_it_is_answered_at_once_where_nothing_is_scheduled(
    endpoint: Endpoint, broker: Broker
) -> None:
    """RabbitMQ says so: the queues of scheduled messages are empty."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send("now")
        await until(lambda: peeked(door))
    async with open_door(endpoint, broker.management_url, ORDERS, with_sidecar=False) as unled:
        async with asyncio.timeout(LED_WITHIN_S):
            assert await peeked(unled) == [b"now"]
