"""Receivers that take one message after the other: what comes ahead costs nobody anything."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from bridge.broker.channel import Channel
from bridge.broker.endpoint import Endpoint
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.integration.door import Door, open_door
from tests.integration.inbox import eventually

ORDERS = model.Queue(name="orders")
BODIES = [str(number) for number in range(300)]


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue."""
    async with open_door(endpoint, broker.management_url, ORDERS) as opened:
        yield opened


async def in_rhythm(door: Door) -> int:
    """Receive and complete one by one, until something lies ready ahead; return how many."""
    client = door.client()
    for number in range(len(BODIES) - 3):
        (received,) = await client.receive()
        assert (received.sequence_number, received.delivery_count) == (number + 1, 0)
        await door.complete(received)
        if door.namespace.kept:
            return number + 1
    return len(BODIES) - 3


async def test_when_the_rhythm_ends_rabbitmq_has_everything_back(
    door: Door, confirming: Channel, broker: Broker
) -> None:
    """And has counted nothing. Before 4.3, where a return counts, nothing comes ahead."""
    await door.send(*BODIES)
    taken = await in_rhythm(door)
    assert (taken < len(BODIES) - 3) == (broker.version >= (4, 3)), "what should come ahead"

    async def is_back() -> bool:
        state = await confirming.declare_queue("orders", passive=True)
        return state.messages == len(BODIES) - taken

    await eventually(is_back)
    rest = await door.client().receive(len(BODIES) - taken)
    assert [each.sequence_number for each in rest] == list(range(taken + 1, len(BODIES) + 1))
    assert {each.delivery_count for each in rest} == {0}


async def test_what_came_ahead_goes_to_whoever_asks_next(door: Door) -> None:
    """In the order of the queue."""
    await door.send(*BODIES)
    taken = await in_rhythm(door)
    received = [await door.client().receive() for _ in range(3)]
    assert [each.sequence_number for (each,) in received] == [taken + 1, taken + 2, taken + 3]
