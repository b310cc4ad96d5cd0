"""A large batch on its way through RabbitMQ costs other clients no more than its share of turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.outcome import resolve
from bridge.engine.api import ReceiveMode
from bridge.model import entity as model
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


@pytest.mark.parametrize(
    "count", [pytest.param(16_001), pytest.param(100_000, marks=pytest.mark.long)]
)
@undisturbed
async def test_a_batch_of_many_messages_is_numbered_in_turns(door: Door, count: int) -> None:
    """All messages are stored in order, and no turn of the loop takes long."""
    await door.send("first")
    each = (outgoing(f"{number:05d}") for number in range(count))
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    probe = Probe()
    probe.start()
    await door.namespace.begin_sending_each(door.path, each, partial(resolve, stored))
    await stored
    sent_s, probe.longest_s = probe.longest_s, 0.0
    meters = door.sidecar.meters["orders"]
    await until(lambda: meters.published > count and not meters.in_flight)
    numbered_s, probe.longest_s = probe.longest_s, 0.0
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE)
    bodies: list[bytes] = []
    while len(bodies) <= count:
        wanted = min(CREDIT, count + 1 - len(bodies))
        bodies += [each.record.body for each in await client.receive(wanted)]
    probe.stop()
    assert bodies == [b"first", *(b"%05d" % number for number in range(count))]
    check(sent_s, TURN_S_MAX)
    check(numbered_s, TURN_S_MAX)
    check(probe.longest_s, TURN_S_MAX)
