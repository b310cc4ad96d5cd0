"""Where RabbitMQ may be a cluster before 4.3: few messages are locked at a time, of all bridges."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.machine.credit.clustered_gets import CONSUMERS_MAX, HELD_MIN
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.integration.door import Door, open_door_unseeing

ORDERS = model.Queue(name="orders")
MANY = 40


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker, vhost: str) -> AsyncIterator[Door]:
    """A bridge with one queue, whose user may not see how many nodes RabbitMQ has."""
    async with open_door_unseeing(endpoint, broker, vhost, ORDERS) as opened:
        yield opened


async def test_few_are_locked_at_a_time_and_each_settlement_lets_another_come(
    door: Door, confirming: Channel, broker: Broker
) -> None:
    """The queue never has more consumers, and everything comes in its turn, in order."""
    await door.send(*(str(number) for number in range(MANY)))
    client = door.client()
    client.receiver.add_credit(MANY)
    at_once = CONSUMERS_MAX if broker.version < (4, 3) else MANY
    held = await client.wait(at_once)
    numbers = [each.sequence_number for each in held]
    while held:
        state = await confirming.declarations.declare_queue("orders", passive=True)
        assert state.consumers <= CONSUMERS_MAX
        await door.complete(held.pop())
        if len(numbers) < MANY:
            held += await client.wait(1)
            numbers.append(held[-1].sequence_number)
    assert numbers == list(range(1, MANY + 1))


async def test_a_few_are_locked_beside_others_and_the_rest_when_those_have_settled(
    door: Door, confirming: Channel, broker: Broker
) -> None:
    """Also when nothing is settled here that would tell."""
    await door.send(*(str(number) for number in range(MANY)))
    others = [await confirming.consumers.get("orders") for _ in range(CONSUMERS_MAX)]
    client = door.client()
    client.receiver.add_credit(MANY - CONSUMERS_MAX)
    await client.wait_for_first()
    if broker.version < (4, 3):
        await client.wait(HELD_MIN)
        state = await confirming.declarations.declare_queue("orders", passive=True)
        assert state.messages == MANY - CONSUMERS_MAX - HELD_MIN
        for each in others:
            assert each is not None
            confirming.consumers.ack(each.tag)
        await client.wait(CONSUMERS_MAX - HELD_MIN)
    else:
        await client.wait(MANY - CONSUMERS_MAX)
