"""What is known of the channels of others, by their addresses, and the answers that go there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from bridge.broker.connection.addresses import Addresses
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.engine.sending.sender import Sender
from bridge.machine.arrival import ReplyTo
from bridge.machine.sequencer import Answer
from bridge.sidecar.shared_connection import SharedConnection
from bridge.wire.headers import DIRECT_REPLY_TO
from tests.brokers.node import CREDENTIALS, Node
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until

ANSWERS = 500

SOON_S = 0.5
"""So long RabbitMQ may take for an answer, lest an alarm take as long as 30 s."""


class Listener:
    """Somebody who has an address, in plain pika; keeps what comes there."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel: BlockingChannel = self._connection.channel()
        self._heard: list[bytes] = []
        self._channel.basic_consume(
            DIRECT_REPLY_TO, lambda _1, _2, _3, body: self._heard.append(body), auto_ack=True
        )
        probe = self._channel.queue_declare("", exclusive=True).method.queue
        asked = pika.BasicProperties(reply_to=DIRECT_REPLY_TO)
        self._channel.basic_publish("", probe, b"", asked)
        self.address = next(
            properties.reply_to
            for _, properties, _ in self._channel.consume(probe, auto_ack=True)
            if properties.reply_to is not None
        )

    def close(self) -> None:
        """Go, if the node is there to hear that."""
        with contextlib.suppress(pika.exceptions.AMQPError):
            self._connection.close()

    def heard(self) -> list[bytes]:
        """What came so far."""
        self._connection.process_data_events(0)
        return self._heard


def url_of(node: Node) -> str:
    """A node of a cluster."""
    return f"amqp://{CREDENTIALS}@127.0.0.1:{node.port}/%2F"


async def test_answers_come_in_the_order_in_which_they_were_given(broker: Broker) -> None:
    """Also those of the first moment, when it is not known yet which of them are elsewhere."""
    url = broker.url_of("/")
    listener = await asyncio.to_thread(Listener, url)
    sender = Sender(parse_url(url), name="test")
    sender.start()
    await sender.ready.wait()
    given: list[bytes] = []
    async with asyncio.timeout(120):
        while len(listener.heard()) < ANSWERS:
            given.append(b"%d" % len(given))
            assert sender.answer(listener.address, "", given[-1])
            await asyncio.sleep(0)  # a turn of the loop

    assert listener.heard()[:ANSWERS] == given[:ANSWERS]
    await sender.close()
    listener.close()


@pytest.mark.long
async def test_answers_go_their_usual_way_after_an_alarm(
    start_broker: Callable[[], Broker],
) -> None:
    """It began before the connection, on which nothing could be learned for as long as it lasts."""
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    ctl, url = broker.node.rabbitmqctl, broker.url_of("/")
    listener = await asyncio.to_thread(Listener, url)
    await asyncio.to_thread(ctl, "set_vm_memory_high_watermark", "0.000001")
    connection = await Connection.open(parse_url(url), name="test", timeout_s=SOON_S)
    published: list[tuple[str, bytes, bytes]] = []
    addresses = Addresses(parse_url(url), connection, lambda *each: published.append(each))
    opening = asyncio.create_task(addresses.open_if_needed())
    await until(lambda: connection.is_blocked or opening.done())
    await asyncio.wait((opening,), timeout=2 * SOON_S)
    answers = [(listener.address, b"", b"%d" % number) for number in range(3)]
    for each in answers[:2]:
        addresses.answer(*each)
    await asyncio.to_thread(ctl, "set_vm_memory_high_watermark", "0.6")
    await opening
    addresses.answer(*answers[2])

    assert published == answers
    listener.close()
    await connection.close()


@pytest.mark.long
async def test_who_was_on_a_dead_node_is_gone_and_ends_no_connection(cluster: Broker) -> None:
    """Before 4.0 RabbitMQ ends each connection that asks about such an address, or publishes."""
    assert cluster.cluster is not None
    dying, ours, other = cluster.cluster.nodes
    endpoint = parse_url(url_of(ours))
    connection = await Connection.open(endpoint, name="test")
    shared = SharedConnection(endpoint, connection)
    await shared.open()
    gone = await asyncio.to_thread(Listener, url_of(dying))
    near = await asyncio.to_thread(Listener, url_of(ours))
    far = await asyncio.to_thread(Listener, url_of(other))
    there = [gone, near, far]
    assert all([await shared.addresses.is_there(connection, each.address) for each in there])

    waiting = asyncio.create_task(shared.addresses.await_end(connection, gone.address))
    await asyncio.to_thread(dying.kill)
    async with asyncio.timeout(120):
        await waiting

    assert not await shared.addresses.is_there(connection, gone.address)
    shared.answer(Answer(ReplyTo(gone.address, "1"), b"lost"))
    for listener in (near, far):

        def is_heard(listener: Listener = listener) -> bool:
            shared.answer(Answer(ReplyTo(listener.address, "1"), b"yes"))
            return b"yes" in listener.heard()

        await until(is_heard)  # an answer that is lost is asked for again
    assert await shared.addresses.is_there(connection, far.address)
    assert not connection.is_closed
    for listener in there:
        listener.close()
    await connection.close()
