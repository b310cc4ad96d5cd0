"""Receivers that take one message after the other: what comes ahead is lost to nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

ORDERS = model.Queue(name="orders")
BODIES = [str(number) for number in range(1_000)]


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue."""
    async with open_door(endpoint, broker.management_url, ORDERS) as opened:
        yield opened


async def until_ahead(door: Door) -> int:
    """Receive and complete one by one, until something lies ready ahead; return how many."""
    client = door.client()
    for number in range(len(BODIES) - 3):
        (received,) = await client.receive()
        assert (received.sequence_number, received.delivery_count) == (number + 1, 0)
        await door.complete(received)
        if door.namespace.state.buffered:
            return number + 1
    return len(BODIES) - 3


async def test_when_nobody_asks_any_more_the_next_receiver_has_everything(
    door: Door, confirming: Channel, broker: Broker
) -> None:
    """Uncounted. From 4.3 on RabbitMQ has it back by then; before, a return would count."""
    await door.send(*BODIES)
    taken = await until_ahead(door)
    assert taken < len(BODIES) - 3, "nothing has come ahead"

    async def is_back() -> bool:
        state = await confirming.declarations.declare_queue("orders", passive=True)
        return state.messages == len(BODIES) - taken

    if broker.version >= (4, 3):
        await until(is_back)
    rest = await door.client().receive(len(BODIES) - taken)
    assert [each.sequence_number for each in rest] == list(range(taken + 1, len(BODIES) + 1))
    assert {each.delivery_count for each in rest} == {0}


@pytest.mark.long
async def test_a_native_consumer_has_what_came_ahead_of_a_receiver_that_has_left(
    door: Door, confirming: Channel
) -> None:
    """Before 4.3 it is kept for the next receiver for 5 s first."""
    await door.send(*BODIES)
    taken = await until_ahead(door)
    came: list[bytes] = []
    await confirming.consumers.consume(
        "orders", lambda delivery: came.append(delivery.body), no_ack=True
    )

    async def is_all_there() -> bool:
        return len(came) == len(BODIES) - taken

    await until(is_all_there)
    assert sorted(came, key=int) == [body.encode() for body in BODIES[taken:]]


@pytest.mark.long
async def test_who_gets_natively_has_it_as_well(door: Door, confirming: Channel) -> None:
    """Though nothing tells the bridge of somebody who only gets."""
    await door.send(*BODIES)
    taken = await until_ahead(door)
    came: list[bytes] = []

    async def is_all_there() -> bool:
        while (got := await confirming.consumers.get("orders")) is not None:
            came.append(got.body)
            confirming.consumers.ack(got.tag)
        return len(came) == len(BODIES) - taken

    await until(is_all_there)
    assert sorted(came, key=int) == [body.encode() for body in BODIES[taken:]]


@pytest.mark.long
async def test_what_one_return_would_dead_letter_does_not_come_ahead(
    endpoint: Endpoint, broker: Broker
) -> None:
    """MaxDeliveryCount 1, before 4.3: RabbitMQ counts the return."""
    once = model.Queue(name="orders", max_delivery_count=1)
    async with open_door(endpoint, broker.management_url, once) as door:
        await door.send(*BODIES)
        has_come_ahead = await until_ahead(door) < len(BODIES) - 3
        assert has_come_ahead == (broker.version >= (4, 3))


async def test_what_came_ahead_goes_to_whoever_asks_next(door: Door) -> None:
    """In the order of the queue."""
    await door.send(*BODIES)
    taken = await until_ahead(door)
    received = [await door.client().receive() for _ in range(3)]
    assert [each.sequence_number for (each,) in received] == [taken + 1, taken + 2, taken + 3]
