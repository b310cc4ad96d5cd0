"""Messages that go back one by one come again first, and in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Abandon, Received, Release
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.integration.door import Door, open_door, outgoing

COUNT = 2_000
HELD = 1_000
ORDERS = model.Queue(name="orders", lock_duration_ms=300_000, max_delivery_count=100)
ROUNDS = 4


async def send(door: Door) -> None:
    """Send messages in few batches."""
    for at in range(0, COUNT, 500):
        batch = [outgoing(str(number)) for number in range(at, at + 500)]
        await door.namespace.send(door.path, batch)


def give_back(door: Door, received: Sequence[Received], how: Release | Abandon) -> None:
    """Give messages back now, one by one."""
    for each in received:
        assert each.lock_token is not None
        door.namespace.begin_settling(door.path, each.lock_token, how, lambda error: None)


def numbers(received: Sequence[Received]) -> list[int]:
    """Return sequence numbers."""
    return [each.sequence_number for each in received]


@pytest.mark.parametrize("how", [Release(), Abandon()], ids=["released", "abandoned"])
async def test_many_that_are_given_back_come_again_before_newer_ones(
    how: Release | Abandon, endpoint: Endpoint, broker: Broker
) -> None:
    """RabbitMQ's channel keeps all but 32 returns back while the queue has not taken these."""
    if broker.version < (4, 3):
        pytest.skip("before 4.3 released messages wait in the bridge")
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await send(door)
        for _ in range(ROUNDS):
            giving, taking = door.client(), door.client()
            given = await giving.receive(HELD)
            assert numbers(given) == list(range(1, HELD + 1))
            give_back(door, given, how)
            again = await taking.receive(HELD)
            assert numbers(again) == list(range(1, HELD + 1))
            give_back(door, again, Release())
            for each in (giving, taking):
                await each.receiver.close()


async def test_a_drain_brings_many_that_were_given_back_just_before(
    endpoint: Endpoint, broker: Broker
) -> None:
    """It is not answered as for an empty queue while they are on their way back."""
    if broker.version < (4, 3):
        pytest.skip("before 4.3 released messages wait in the bridge")
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await send(door)
        for _ in range(ROUNDS):
            giving, taking = door.client(), door.client()
            given = await giving.receive(COUNT)
            give_back(door, given, Release())
            taking.receiver.add_credit(COUNT)
            await taking.receiver.drain()
            assert numbers(taking.received) == list(range(1, COUNT + 1))
            give_back(door, taking.received, Release())
            for each in (giving, taking):
                await each.receiver.close()
