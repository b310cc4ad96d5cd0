"""Receivers that take one message after the other: what comes ahead costs nobody anything."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from bridge.broker.channel import Channel
from bridge.broker.endpoint import Endpoint
from bridge.machine.demand import AHEAD_MAX
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
    raise AssertionError("nothing came ahead")


async def test_when_the_rhythm_ends_nothing_has_been_counted(
    door: Door, confirming: Channel, broker: Broker
) -> None:
    """4.3 gets back what came ahead; before, it waits for the next receiver. Neither counts."""
    await door.send(*BODIES)
    taken = await in_rhythm(door)

    async def is_back() -> bool:
        state = await confirming.declare_queue("orders", passive=True)
        ahead = len(BODIES) - taken - state.messages
        return ahead == 0 if broker.version >= (4, 3) else 0 <= ahead <= AHEAD_MAX

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
