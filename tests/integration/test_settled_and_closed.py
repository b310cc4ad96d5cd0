"""A client of the library that settles and is closed at once: nothing of that comes again.

RabbitMQ forgets settlements of a channel that ends before it has taken them (forgotten-acks in
docs/rabbitmq-faults.md): without a proof 467 of 500 came again.
"""

from __future__ import annotations

import asyncio

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.client import ServiceBusClient as PikaClient
from bridge.client import ServiceBusReceiveMode
from bridge.client.aio import ServiceBusClient as AioClient
from bridge.engine.api import Complete
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

ORDERS = model.Queue(name="orders", lock_duration_ms=300_000)
SENT = 400
LEFT = 5
MODES = [ServiceBusReceiveMode.PEEK_LOCK, ServiceBusReceiveMode.RECEIVE_AND_DELETE]


def settle_with_pika(url: str, mode: ServiceBusReceiveMode, keeps: int) -> list[int]:
    """Receive all, settle all but some, close; return the numbers that were settled."""
    messages = []
    with PikaClient.from_connection_string(url) as client:
        receiver = client.get_queue_receiver("orders", receive_mode=mode)
        while len(messages) < SENT:
            messages += receiver.receive_messages(SENT - len(messages), max_wait_time=60)
        if mode is ServiceBusReceiveMode.PEEK_LOCK:
            for each in messages[keeps:]:
                receiver.complete_message(each)
    return [each.sequence_number for each in messages[keeps:]]


async def settle_with_aio(url: str, mode: ServiceBusReceiveMode, keeps: int) -> list[int]:
    """The same, asynchronously."""
    messages = []
    async with AioClient.from_connection_string(url) as client:
        receiver = client.get_queue_receiver("orders", receive_mode=mode)
        while len(messages) < SENT:
            messages += await receiver.receive_messages(SENT - len(messages), max_wait_time=60)
        if mode is ServiceBusReceiveMode.PEEK_LOCK:
            await asyncio.gather(*map(receiver.complete_message, messages[keeps:]))
    return [each.sequence_number for each in messages[keeps:]]


async def what_comes(door: Door, count: int) -> list[int]:
    """Return the numbers of the next messages."""
    client = door.client()
    found = []
    for each in await client.receive(count):
        found.append(each.sequence_number)
        assert each.lock_token is not None
        await door.namespace.settle(door.path, each.lock_token, Complete())
    return found


@pytest.mark.parametrize("keeps", [pytest.param(0, marks=pytest.mark.long), LEFT])
@pytest.mark.parametrize("mode", MODES, ids=["locked", "deleted"])
@pytest.mark.parametrize("lane", ["pika", "aio"])
async def test_what_was_settled_before_a_close_does_not_come_again(
    endpoint: Endpoint,
    broker: Broker,
    vhost: str,
    lane: str,
    mode: ServiceBusReceiveMode,
    keeps: int,
) -> None:
    """What is locked at the close comes again in its order, and then only what was sent later."""
    if mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
        keeps = 0
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await door.send(*map(str, range(SENT + LEFT)))
        await until(lambda: door.sidecar.meters["orders"].is_active)
        url = broker.url_of(vhost)
        if lane == "pika":
            settled = await asyncio.to_thread(settle_with_pika, url, mode, keeps)
        else:
            settled = await settle_with_aio(url, mode, keeps)
        kept = [each for each in range(1, SENT + 1) if each not in settled]
        assert len(kept) == keeps
        ahead = list(range(SENT + 1, SENT + LEFT + 1))
        assert sorted(await what_comes(door, keeps + LEFT)) == kept + ahead
