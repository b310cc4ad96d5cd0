"""A large batch on its way through RabbitMQ costs other clients no more than its share of turns."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import ReceiveMode
from bridge.model import entity as model
from bridge.wire.amqp10.message import BATCH_MESSAGES_MAX
from tests.conformance.probe import Probe, check, undisturbed
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

ORDERS = model.Queue(name="orders")

CREDIT = 1_000
"""As much as the gateway asks for at a time."""

TURN_S_MAX = 0.15
"""Half more than is promised, for the tests share their cores."""


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue."""
    async with open_door(endpoint, broker.management_url, ORDERS) as opened:
        yield opened


@undisturbed
async def test_a_batch_of_many_messages_is_numbered_in_turns(door: Door) -> None:
    """As many messages as Azure takes are stored in order, and no turn of the loop takes long."""
    await door.send("first")
    batch = [outgoing(f"{number:05d}") for number in range(BATCH_MESSAGES_MAX)]
    probe = Probe()
    probe.start()
    await door.namespace.send(door.path, batch)
    sent_s, probe.longest_s = probe.longest_s, 0.0
    meters = door.sidecar.meters["orders"]
    await until(lambda: meters.published > BATCH_MESSAGES_MAX and not meters.in_flight)
    numbered_s, probe.longest_s = probe.longest_s, 0.0
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE)
    bodies: list[bytes] = []
    while len(bodies) <= BATCH_MESSAGES_MAX:
        count = min(CREDIT, BATCH_MESSAGES_MAX + 1 - len(bodies))
        bodies += [each.record.body for each in await client.receive(count)]
    probe.stop()
    assert bodies == [b"first", *(b"%05d" % number for number in range(BATCH_MESSAGES_MAX))]
    check(sent_s, TURN_S_MAX)
    check(numbered_s, TURN_S_MAX)
    check(probe.longest_s, TURN_S_MAX)
