"""Browse on a real RabbitMQ: what stands beside what a peek shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.streams.stream_reader import FIRST, StreamEntry, read_stream
from bridge.engine.api import Abandon, Complete, DeadLetter
from bridge.engine.browse import view
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.topology.parts import JOURNAL_SEGMENT_BYTES
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

GONE = 3
BODY = bytes(1 << 20)
QUEUES = (model.Queue(name="orders", lock_duration_ms=60_000), model.Queue(name="other"))


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with two queues."""
    async with open_door(endpoint, broker.management_url, *QUEUES) as opened:
        yield opened


async def dead_letter(door: Door, *bodies: str) -> None:
    """Send messages, and have them dead-lettered."""
    await door.send(*bodies)
    for each in await door.client().receive(len(bodies)):
        assert each.lock_token is not None
        await door.namespace.settle(door.path, each.lock_token, DeadLetter())


async def first_offset(connection: Connection, stream: str) -> int:
    """Where the oldest entry of a stream stands that RabbitMQ still has."""
    found: list[int] = []

    def take(entry: StreamEntry) -> bool:
        found.append(entry.offset)
        return True

    await read_stream(connection, stream, FIRST, take, prefetch=1)
    return found[0]


async def test_dead_letters_behind_those_that_have_left_their_stream_are_shown(
    door: Door, broker: Broker, vhost: str, connection: Connection, confirming: Channel
) -> None:
    """A stream forgets its oldest; an empty page would say that there is nothing behind them."""
    moved = names.moved("orders")
    await dead_letter(door, *(f"gone-{number}" for number in range(GONE)))
    assert len(await door.namespace.peek(door.dead_letters, 0, 10)) == GONE
    bound = {
        "pattern": "^orders/\\$moved$",
        "definition": {"max-length-bytes": 1},
        "priority": 2_000,
        "apply-to": "queues",
    }
    broker.management("PUT", f"/api/policies/{vhost}/small", bound)
    properties = Properties(delivery_mode=2).encode()
    for _ in range(JOURNAL_SEGMENT_BYTES // len(BODY) + 2):
        await confirming.publisher.publish_confirmed("", moved, properties, BODY)

    async def are_gone() -> bool:
        return await first_offset(connection, moved) >= GONE

    await dead_letter(door, "here", "too")
    await until(are_gone)
    for count in (1, GONE, 10):
        found = await door.namespace.peek(door.dead_letters, 0, count)
        assert [each.record.body for each in found] == [b"here", b"too"][:count]


async def test_the_first_peek_of_an_entity_holds_up_none_of_another(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds however long RabbitMQ takes to make the first one's streams."""
    other = EntityPath("other")
    await door.send("x")
    await door.namespace.send(other, [outgoing("y")])
    await until(lambda: door.namespace.peek(other, 0, 1))
    monkeypatch.setattr(view, "OTHERS_TELL_S", 3_600.0)
    first = asyncio.create_task(door.namespace.peek(door.path, 0, 1))
    await asyncio.sleep(0)
    async with asyncio.timeout(120):
        (found,) = await door.namespace.peek(other, 0, 1)
    assert found.record.body == b"y"
    first.cancel()


async def test_a_peek_at_one_bridge_shows_what_another_has_given_back(
    endpoint: Endpoint, broker: Broker, door: Door
) -> None:
    """Before the first peek of all, and after it; a message that has left is in no count."""
    async with open_door(endpoint, broker.management_url) as other:

        async def fail(count: int) -> None:
            for each in await door.client().receive(count):
                assert each.lock_token is not None
                await door.namespace.settle(door.path, each.lock_token, Abandon())

        async def counts() -> list[tuple[bytes, int]]:
            found = await other.namespace.peek(door.path, 0, 10)
            return [(each.record.body, each.delivery_count) for each in found]

        async def are(*expected: tuple[bytes, int]) -> None:
            async def hold() -> bool:
                return await counts() == [*expected]

            await until(hold)

        await door.send("a", "b")
        await fail(2)
        await are((b"a", 1), (b"b", 1))
        await fail(1)
        await are((b"a", 2), (b"b", 1))
        (first,) = await door.client().receive(1)
        assert first.lock_token is not None
        assert (first.record.body, first.delivery_count) == (b"b", 1), "in the order of return"
        await are((b"a", 2), (b"b", 1))
        await door.namespace.settle(door.path, first.lock_token, Complete())
        await are((b"a", 2))
