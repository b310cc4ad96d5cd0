"""A settlement that publishes, and whose confirm is lost: the message ends in one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pamqp.base
import pamqp.commands
import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import parse_url
from bridge.engine.api import Abandon, DeadLetter, Defer, ReceiveMode
from bridge.model import entity as model
from bridge.topology import names
from bridge.wire.basic import text
from tests.fixtures.broker import Broker
from tests.fixtures.relay import Relay
from tests.integration.door import Door, open_door

ORDERS = model.Queue(name="orders", lock_duration_ms=300_000)

WITHIN_S = 120.0


class Cable:
    """A relay that holds back what is published to one queue.

    Attributes:
        queue: the queue; "" for none.
    """

    def __init__(self, url: str) -> None:
        self.queue = ""
        self.relay = Relay(url, holds=self._holds)

    def _holds(self, method: pamqp.base.Frame) -> bool:
        if not self.queue or not isinstance(method, pamqp.commands.Basic.Publish):
            return False
        return method.routing_key == self.queue

    async def lose_the_confirm(self, queue: str) -> None:
        """Have RabbitMQ store the next message to a queue, and the publisher not know."""
        self.queue = queue
        assert await asyncio.to_thread(self.relay.holding.wait, WITHIN_S)
        self.relay.lose_answers()


@pytest.fixture
def cable(broker: Broker, vhost: str) -> Cable:
    """What the bridge is connected by."""
    return Cable(broker.url_of(vhost))


@pytest_asyncio.fixture
async def door(broker: Broker, cable: Cable) -> AsyncIterator[Door]:
    """A bridge behind it."""
    with cable.relay:
        async with open_door(parse_url(cable.relay.url), broker.management_url, ORDERS) as opened:
            yield opened


async def none_comes(door: Door) -> None:
    """No message is active."""
    client = door.client()
    client.receiver.add_credit(1)
    await door.send("last")
    (found,) = await client.wait(1)
    assert found.record.body == b"last"
    await door.complete(found)


@pytest.mark.long
async def test_a_dead_lettering_whose_confirm_is_lost(door: Door, cable: Cable) -> None:
    """It is told done when it is, and the message is in the dead-letter queue, once."""
    await door.send("a")
    (received,) = await door.client().receive()
    assert received.lock_token is not None
    settling = asyncio.ensure_future(
        door.namespace.settle(door.path, received.lock_token, DeadLetter(reason="mine"))
    )
    await cable.lose_the_confirm(names.dead_letter_queue("orders"))
    await settling
    await none_comes(door)
    dead = door.client(path=door.dead_letters)
    (found,) = await dead.receive()
    await door.complete(found, path=door.dead_letters)
    dead.receiver.add_credit(1)
    await none_comes(door)
    assert not dead.received


async def test_a_deferral_whose_confirm_is_lost(door: Door, cable: Cable) -> None:
    """The message is deferred, once."""
    await door.send("a")
    (received,) = await door.client().receive()
    assert received.lock_token is not None
    settling = asyncio.ensure_future(door.namespace.settle(door.path, received.lock_token, Defer()))
    await cable.lose_the_confirm(names.deferred_queue("orders"))
    await settling
    await none_comes(door)
    (found,) = await door.namespace.receive_deferred(
        door.path, [received.sequence_number], ReceiveMode.PEEK_LOCK
    )
    await door.complete(found)


@pytest.mark.long
async def test_an_abandonment_with_changes_whose_confirm_is_lost(door: Door, cable: Cable) -> None:
    """The message comes again, changed, once."""
    await door.send("a")
    client = door.client()
    (received,) = await client.receive()
    assert received.lock_token is not None
    changes = Abandon(properties={"colour": text("red")})
    settling = asyncio.ensure_future(door.namespace.settle(door.path, received.lock_token, changes))
    await cable.lose_the_confirm(names.active_queue("orders"))
    await settling
    (again,) = await client.receive()
    assert (again.record.body, again.delivery_count) == (b"a", 1)
    assert (again.record.properties.headers or {})["colour"] == text("red")
    await door.complete(again)
    await none_comes(door)
