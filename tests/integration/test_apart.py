"""Where RabbitMQ may be a cluster, since 4.3: each window has a channel of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Abandon
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door_unseeing

ORDERS = model.Queue(name="orders")
FEW = 4


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker, vhost: str) -> AsyncIterator[Door]:
    """A bridge with one queue, whose user may not see how many nodes RabbitMQ has."""
    async with open_door_unseeing(endpoint, broker, vhost, ORDERS) as opened:
        yield opened


@pytest.mark.long
async def test_no_channel_consumes_twice_and_each_ends_with_its_last_message(
    door: Door, broker: Broker, vhost: str
) -> None:
    """Before 4.3 all is done on one channel."""

    def consuming() -> set[str]:
        rows = broker.management("GET", f"/api/consumers/{vhost}")
        # RabbitMQ has no details of a channel that is about to end.
        details = [row["channel_details"] for row in rows if row["queue"]["name"] == "orders"]
        return {each["name"] for each in details if each}

    def channels() -> set[str]:
        return {row["name"] for row in broker.management("GET", f"/api/vhosts/{vhost}/channels")}

    client = door.client()
    held, seen = [], set()
    for number in range(FEW):
        client.receiver.add_credit(1)
        await until(consuming)
        seen |= consuming()
        await door.send(str(number))
        held += await client.wait(1)
        await until(lambda: not consuming() or broker.version < (4, 3))
    is_apart = broker.version >= (4, 3)
    assert len(seen) == (FEW if is_apart else 1)
    await until(lambda: seen <= channels())
    await door.complete(*held)
    await until(lambda: bool(seen & channels()) != is_apart)


async def test_what_is_given_back_comes_before_the_rest(door: Door) -> None:
    """Although it goes back on one channel, and the next is consumed on another."""
    await door.send("a", "b")
    client = door.client()
    for count in range(FEW):
        (received,) = await client.receive()
        assert (received.sequence_number, received.delivery_count) == (1, count)
        assert received.lock_token is not None
        await door.namespace.settle(door.path, received.lock_token, Abandon())
