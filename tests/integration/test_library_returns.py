"""Two messages of one route, sent by the library at once: RabbitMQ returns one, and stores one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from bridge.client.address import parse
from bridge.client.aio.connection import AioWire
from bridge.client.core.publisher import Publisher
from bridge.client.core.wire import Confirmed, Unroutable, Wire
from bridge.client.sync.connection import PikaWire
from bridge.client.sync.thread import IoThread
from bridge.wire.basic import Properties, text
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually, until

WITHIN_S = 120.0

Outcomes = dict[str, Exception | None]


@pytest.fixture
def channel(broker: Broker, vhost: str) -> Iterator[BlockingChannel]:
    """An exchange that takes a message by a header, whose queue confirms after the return."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url_of(vhost)))
    channel = connection.channel()
    channel.exchange_declare("colours", "headers", durable=True)
    channel.queue_declare("blue", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind("blue", "colours", "", {"colour": "blue", "x-match": "all"})
    yield channel
    connection.close()


def publish_both(wire: Wire, told: Outcomes) -> None:
    """Publish a message that a queue takes, and one that none takes."""
    publisher = Publisher(wire)

    def confirmed(colour: str, error: Exception | None) -> None:
        told[colour] = error

    for colour in ("blue", "red"):
        properties = Properties(headers={"colour": text(colour)}, delivery_mode=2).encode()
        told_of: Confirmed = partial(confirmed, colour)
        publisher.publish("colours", "", properties, b"same", told_of)


def check(told: Outcomes, channel: BlockingChannel) -> None:
    """Each was told what has become of it, and one message is there."""
    assert told["blue"] is None
    assert isinstance(told["red"], Unroutable)
    assert channel.queue_declare("blue", passive=True).method.message_count == 1


def test_one_is_stored_and_one_returned_pika(
    broker: Broker, vhost: str, channel: BlockingChannel
) -> None:
    """A return marks the publish that it belongs to, and no other one of the route."""
    thread = IoThread()
    wire = PikaWire(thread, parse(broker.url_of(vhost)), "test")
    ready: Future[None] = Future()
    told: Outcomes = {}
    thread.call(wire.start_once)
    thread.call(lambda: wire.ready(ready))
    ready.result(WITHIN_S)
    thread.call(lambda: publish_both(wire, told))
    eventually(lambda: len(told) == 2, within_s=WITHIN_S)
    thread.call(wire.close)
    eventually(lambda: not wire.is_up and not wire.is_closing, within_s=WITHIN_S)
    thread.call(thread.stop)
    thread.join(WITHIN_S)
    check(told, channel)


async def test_one_is_stored_and_one_returned_aio_pika(
    broker: Broker, vhost: str, channel: BlockingChannel
) -> None:
    """The same on aio-pika."""
    wire = AioWire(parse(broker.url_of(vhost)), "test")
    await wire.ready(WITHIN_S)
    told: Outcomes = {}
    publish_both(wire, told)
    await until(lambda: len(told) == 2, within_s=WITHIN_S)
    await wire.close()
    await asyncio.to_thread(check, told, channel)
