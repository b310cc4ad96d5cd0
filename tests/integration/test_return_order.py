"""What comes back together comes back in the order of its numbers."""

from __future__ import annotations

import asyncio
import random

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Received, Release
from bridge.model import entity as model
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door
from tests.integration.session_door import SessionClient, bodies, send

COUNT = 32
NUMBERS = list(range(1, COUNT + 1))
ORDERS = model.Queue(name="orders", lock_duration_ms=5_000)
LONG = model.Queue(name="orders", lock_duration_ms=300_000)


def numbers(received: list[Received]) -> list[int]:
    """Their sequence numbers."""
    return [each.sequence_number for each in received]


async def test_messages_whose_locks_end_together_come_again_in_order(
    endpoint: Endpoint, broker: Broker
) -> None:
    """The next receiver gets them in the order in which the first one had them."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*map(str, NUMBERS))
        assert numbers(await door.client().receive(COUNT)) == NUMBERS
        again = await door.client().receive(COUNT)
        assert numbers(again) == NUMBERS
        assert {each.delivery_count for each in again} == {1}


async def test_messages_renewed_together_in_any_order_come_again_in_order(
    endpoint: Endpoint, broker: Broker
) -> None:
    """One renewal gives all locks one end."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*map(str, NUMBERS))
        tokens = [each.lock_token for each in await door.client().receive(COUNT)]
        random.Random(9).shuffle(tokens)
        ends = await door.namespace.renew_locks(door.path, [each for each in tokens if each])
        assert len(set(ends)) == 1
        assert numbers(await door.client().receive(COUNT)) == NUMBERS


async def test_what_a_receiver_that_ends_gives_back_comes_again_in_order(
    endpoint: Endpoint, broker: Broker
) -> None:
    """In whatever order it gives its messages back."""
    async with open_door(endpoint, broker.management_url, LONG) as door:
        await door.send(*map(str, NUMBERS))
        client = door.client()
        received = await client.receive(COUNT)
        random.Random(9).shuffle(received)
        ending = [
            door.namespace.settle(door.path, each.lock_token, Release())
            for each in received
            if each.lock_token is not None
        ]
        await asyncio.gather(client.receiver.close(), *ending)
        assert numbers(await door.client().receive(COUNT)) == NUMBERS


@pytest.mark.parametrize("ahead", [False, True], ids=["locked", "locked-and-fetched-ahead"])
async def test_a_bridge_that_stops_gives_back_in_order(
    ahead: bool, endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Locked messages stand before those that it had fetched ahead of its receivers."""
    if ahead and broker.version < (4, 3):
        pytest.skip("before 4.3 what was fetched ahead comes back with its channel")
    async with open_door(endpoint, broker.management_url, LONG) as door:
        await door.send(*(str(number) for number in range(400)))
        client = door.client()
        done = await _until_ahead(door) if ahead else 0
        await client.receive(COUNT)
        if ahead:
            client.receiver.add_credit(1)
        left = 400 - done
    found = []

    async def all_back() -> bool:
        queue = names.active_queue(door.path.entity)
        state = await confirming.declarations.declare_queue(queue, passive=True)
        return state.messages == left

    await until(all_back, within_s=120)
    while (got := await confirming.consumers.get("orders")) is not None:
        found.append(got.body.decode())
    assert found == [str(number) for number in range(done, 400)]


async def _until_ahead(door: Door) -> int:
    """Complete one by one until something lies ready ahead; return how many were completed."""
    receiving = door.client()
    for number in range(300):
        (received,) = await receiving.receive()
        await door.complete(received)
        if door.namespace.state.buffered > 1:
            return number + 1
    pytest.fail("nothing has come ahead")


async def test_the_messages_of_a_session_whose_lock_ends_come_again_in_order(
    endpoint: Endpoint, broker: Broker
) -> None:
    """All of them are under one lock."""
    queue = model.Queue(name="orders", requires_session=True, lock_duration_ms=5_000)
    async with open_door(endpoint, broker.management_url, queue) as door:
        first = await SessionClient(door).accept("s")
        sent = [str(number) for number in NUMBERS]
        for body in sent:
            await send(door, "s", body)
        assert bodies(await first.receive(COUNT)) == sent
        await first.wait_for_loss()
        second = await SessionClient(door).accept("s")
        assert bodies(await second.receive(COUNT)) == sent
