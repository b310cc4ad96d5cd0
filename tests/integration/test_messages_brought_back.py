"""Second copies are dropped; what an operator brings back by RabbitMQ's means is none of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pika
import pytest
import pytest_asyncio
from pika.adapters.blocking_connection import BlockingChannel

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Abandon, Complete, DeadLetter, Defer, Disposition, Received
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.wire.basic import text
from tests.fixtures.broker import Broker
from tests.integration.door import WAIT_S, Client, Door, open_door
from tests.integration.session_door import SessionClient, of_session

ORDERS = model.Queue(name="orders", lock_duration_ms=300_000)
SESSIONS = model.Queue(name="orders", lock_duration_ms=300_000, requires_session=True)

CHANGED = Abandon(properties={"colour": text("red")})
ACTIVE = names.active_exchange("orders")
DEAD = names.dead_letter_queue("orders")
DEFERRED = names.deferred_queue("orders")

Letter = tuple[pika.BasicProperties, bytes]


class Operator:
    """Moves messages by RabbitMQ's means."""

    def __init__(self, broker: Broker, vhost: str) -> None:
        self._url = broker.url_of(vhost)

    async def move(self, source: str, exchange: str, target: str) -> Letter:
        """Move the one message of a queue, as a shovel does; return it."""
        return await asyncio.to_thread(self._move, source, exchange, target)

    async def put(self, letter: Letter) -> None:
        """Put a second copy into the queue, as a killed leader may."""
        await asyncio.to_thread(self._put, letter)

    def _move(self, source: str, exchange: str, target: str) -> Letter:
        with self._channel() as channel:
            for method, properties, body in channel.consume(source, inactivity_timeout=WAIT_S):
                assert method is not None, f"nothing is in {source}"
                channel.basic_publish(exchange, target, body, properties, mandatory=True)
                channel.basic_ack(method.delivery_tag)
                channel.cancel()
                return properties, body
        raise AssertionError(source)

    def _put(self, letter: Letter) -> None:
        with self._channel() as channel:
            properties, body = letter
            channel.basic_publish(ACTIVE, "", body, properties, mandatory=True)

    @contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        with pika.BlockingConnection(pika.URLParameters(self._url)) as connection:
            channel: BlockingChannel = connection.channel()
            channel.confirm_delivery()
            yield channel


@pytest.fixture
def operator(broker: Broker, vhost: str) -> Operator:
    """Who moves messages."""
    return Operator(broker, vhost)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge."""
    async with open_door(endpoint, broker.management_url, ORDERS) as opened:
        yield opened


async def settle(
    door: Door, received: Received, disposition: Disposition, path: EntityPath | None = None
) -> None:
    """End a lock."""
    assert received.lock_token is not None
    await door.namespace.settle(path or door.path, received.lock_token, disposition)


async def nothing_else(door: Door, client: Client, session_id: str | None = None) -> None:
    """What is sent now is the next that comes."""
    await door.namespace.send(door.path, [of_session(session_id, "last")])
    (last,) = await client.receive()
    assert last.record.body == b"last"
    await settle(door, last, Complete())


async def test_a_dead_letter_that_is_abandoned_with_changes_again_and_again_is_kept(
    door: Door,
) -> None:
    """Its failures are counted no more, and each time it is a later message all the same."""
    await door.send("a")
    await settle(door, (await door.client().receive())[0], DeadLetter())
    client = door.client(path=door.dead_letters)
    for attempt in range(4):
        (dead,) = await client.receive()
        assert dead.record.body == b"a"
        changes = Abandon(properties={"attempt": text(str(attempt))})
        await settle(door, dead, changes, door.dead_letters)
    (dead,) = await client.receive()
    assert (dead.record.properties.headers or {})["attempt"] == text("3")
    await settle(door, dead, Complete(), door.dead_letters)
    assert door.namespace.counters.second_copies == 0


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_message_that_is_brought_back_again_and_again_is_delivered(
    door: Door, operator: Operator, is_changed: bool
) -> None:
    """Abandoned with changes and dead-lettered before each time, and changed as a dead letter."""
    await door.send("a")
    client, dead = door.client(), door.client(path=door.dead_letters)
    for _ in range(3):
        (message,) = await client.receive()
        assert (message.record.body, message.sequence_number) == (b"a", 1)
        await settle(door, message, CHANGED)
        (message,) = await client.receive()
        await settle(door, message, DeadLetter())
        if is_changed:
            await settle(door, (await dead.receive())[0], CHANGED, door.dead_letters)
        await operator.move(DEAD, ACTIVE, "")
    (message,) = await client.receive()
    await settle(door, message, Complete())
    await nothing_else(door, client)
    assert door.namespace.counters.second_copies == 0


async def test_a_message_that_another_bridge_has_dead_lettered_is_delivered_when_brought_back(
    door: Door, endpoint: Endpoint, broker: Broker, operator: Operator
) -> None:
    """This one has replaced it before, and has not seen it leave."""
    await door.send("a")
    client = door.client()
    (message,) = await client.receive()
    await settle(door, message, CHANGED)
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as other:
        (message,) = await other.client().receive()
        await settle(other, message, DeadLetter())
    await operator.move(DEAD, ACTIVE, "")
    (message,) = await client.receive()
    assert message.record.body == b"a"
    await settle(door, message, Complete())
    await nothing_else(door, client)


async def test_a_deferred_message_that_is_brought_back_is_delivered(
    door: Door, operator: Operator
) -> None:
    """Again and again."""
    await door.send("a")
    client = door.client()
    for _ in range(3):
        (message,) = await client.receive()
        assert (message.record.body, message.sequence_number) == (b"a", 1)
        await settle(door, message, Defer())
        await operator.move(DEFERRED, "", "orders")
    (message,) = await client.receive()
    await settle(door, message, Complete())
    await nothing_else(door, client)


@pytest.mark.parametrize("disposition", [Defer(), DeadLetter()], ids=["deferred", "dead"])
async def test_a_second_copy_of_what_was_moved_is_dropped(
    door: Door, operator: Operator, disposition: Disposition
) -> None:
    """A leader that is killed leaves one."""
    await door.send("a")
    letter = await operator.move("orders", ACTIVE, "")
    client = door.client()
    (message,) = await client.receive()
    await settle(door, message, disposition)
    await operator.put(letter)
    await nothing_else(door, client)
    assert door.namespace.counters.second_copies == 1


@pytest.mark.parametrize("disposition", [Defer(), DeadLetter()], ids=["deferred", "dead"])
async def test_a_second_copy_in_a_session_is_dropped_and_what_is_brought_back_is_delivered(
    endpoint: Endpoint, broker: Broker, operator: Operator, disposition: Disposition
) -> None:
    """Twice: a dead letter counts anew each time."""
    async with open_door(endpoint, broker.management_url, SESSIONS, session_shards=1) as door:
        await door.namespace.send(door.path, [of_session("s", "a")])
        letter = await operator.move("orders", ACTIVE, "")
        client = await SessionClient(door).accept("s")
        for dropped in (1, 2):
            (message,) = await client.receive()
            assert message.record.body == b"a"
            await client.settle(message, disposition)
            await operator.put(letter)
            await door.namespace.send(door.path, [of_session("s", "next")])
            (last,) = await client.receive()
            assert last.record.body == b"next"
            await client.settle(last, Complete())
            assert door.namespace.counters.second_copies == dropped
            if isinstance(disposition, Defer):
                await operator.move(DEFERRED, "", "orders")
            else:
                letter = await operator.move(DEAD, ACTIVE, "")
        (message,) = await client.receive()
        assert message.record.body == b"a"
        await client.settle(message, Complete())
        await client.close()
