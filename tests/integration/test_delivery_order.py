"""The order of one receiver's first deliveries: that of the numbers, however its credit came."""

from __future__ import annotations

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import ReceiveMode
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.integration.door import open_door, outgoing

ORDERS = model.Queue(name="orders", lock_duration_ms=300_000)
COUNT = 1_000


@pytest.mark.parametrize(
    "mode",
    [ReceiveMode.PEEK_LOCK, pytest.param(ReceiveMode.RECEIVE_AND_DELETE, marks=pytest.mark.long)],
)
async def test_a_burst_comes_in_order_to_a_receiver_whose_credit_came_in_portions(
    endpoint: Endpoint, broker: Broker, mode: ReceiveMode
) -> None:
    """It has credit before there is a message, and gets more while messages come."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        for _ in range(10):
            client = door.client(mode)
            for portion in (50, 50, 50):
                client.receiver.add_credit(portion)
                await door.namespace.peek(door.path, 0, 1)  # RabbitMQ has begun the fetch
            await door.namespace.send(door.path, [outgoing(str(each)) for each in range(COUNT)])
            found = []
            while len(found) < COUNT:
                (received,) = await client.wait(1)
                found.append(received.sequence_number)
                if len(found) % 25 == 0 and len(found) + 125 <= COUNT:
                    client.receiver.add_credit(25)
                if received.lock_token is not None:
                    await door.complete(received)
            assert found == list(range(found[0], found[0] + COUNT))
            await client.receiver.close()
