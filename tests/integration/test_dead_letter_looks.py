"""Peeks of dead letters that somebody took out of the middle, and told nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import DeadLetter, ReceiveMode
from bridge.model import entity as model
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

COUNT = 12
TAKEN = (4, 5, 10)
LEFT = [each for each in range(1, COUNT + 1) if each not in TAKEN]
QUEUES = (model.Queue(name="orders", lock_duration_ms=60_000),)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge on a RabbitMQ that does not count what goes back, with dead letters."""
    if broker.version < (4, 3):
        pytest.skip("before 4.3 dead letters are not looked through")
    async with open_door(endpoint, broker.management_url, *QUEUES) as opened:
        await die(opened, COUNT)
        yield opened


async def die(door: Door, count: int) -> None:
    """Send messages, and have them dead-lettered in order."""
    await door.send(*(str(each) for each in range(1, count + 1)))
    for each in await door.client().receive(count):
        assert each.lock_token is not None
        await door.namespace.settle(door.path, each.lock_token, DeadLetter(reason="bad"))


async def take_natively(connection: Connection, *numbers: int) -> None:
    """Consume all dead letters without a bridge, ack some and give the others back."""
    channel = await connection.channel()
    came: dict[int, Delivery] = {}

    def take(delivery: Delivery) -> None:
        came[len(came) + 1] = delivery

    queue = names.dead_letter_queue("orders")
    await channel.consumers.consume(queue, take)
    await until(lambda: len(came) == COUNT)
    for each in numbers:
        channel.consumers.ack(came[each].tag)
    await channel.barrier([queue])
    await channel.close()


async def shown(door: Door) -> list[int]:
    """Return the numbers that a peek of the dead letters shows."""
    found = await door.namespace.peek(door.dead_letters, 0, COUNT)
    return [each.sequence_number for each in found]


@pytest.mark.parametrize("has_peeked", [True, False], ids=["after a peek", "before the first peek"])
async def test_dead_letters_that_a_native_consumer_took_are_not_shown(
    door: Door, connection: Connection, has_peeked: bool
) -> None:
    """And all others are: in their places afterwards, uncounted."""
    if has_peeked:
        assert len(await shown(door)) == COUNT
    await take_natively(connection, *TAKEN)

    async def are_shown() -> bool:
        return await shown(door) == LEFT

    await until(are_shown)
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE, door.dead_letters)
    received = await client.receive(len(LEFT))
    assert [each.sequence_number for each in received] == LEFT
    assert {each.delivery_count for each in received} == {0}
    await client.receiver.close()


async def test_what_others_hold_meanwhile_is_never_said_to_be_missing(
    door: Door, connection: Connection, endpoint: Endpoint, broker: Broker
) -> None:
    """A look cannot see it: a request that locks by number says that it may be there."""
    assert len(await shown(door)) == COUNT
    await take_natively(connection, *TAKEN)
    async with open_door(endpoint, broker.management_url) as other:
        held = await other.namespace.lock_messages(other.dead_letters, [2, 7])
        assert [each.sequence_number for each in held.received] == [2, 7]
        assert {1, 3, 6, 8, 9, 11, 12} <= set(await shown(door))
        locked = await door.namespace.lock_messages(door.dead_letters, [2, 4, 7])
        assert (locked.received, locked.unreached) == ([], [])
        assert {2, 7} <= set(locked.unavailable), locked

        # What is held and given back is found by the next look, whenever that may be.
        for each in held.received:
            assert each.lock_token is not None
            await other.complete(each, path=other.dead_letters)

    async def are_shown() -> bool:
        return await shown(door) == [each for each in LEFT if each not in (2, 7)]

    await until(are_shown)


async def test_a_look_holds_up_no_receiver_and_loses_nothing(
    door: Door, connection: Connection
) -> None:
    """While one is made, receivers get what stands there, each message once."""
    assert len(await shown(door)) == COUNT
    await take_natively(connection, *TAKEN)
    client = door.client(path=door.dead_letters)
    client.receiver.add_credit(COUNT)
    peeks = [asyncio.create_task(shown(door)) for _ in range(3)]
    received = await client.wait(len(LEFT))
    await asyncio.gather(*peeks)
    assert sorted(each.sequence_number for each in received) == LEFT
    assert client.received == []
    await client.receiver.close()
