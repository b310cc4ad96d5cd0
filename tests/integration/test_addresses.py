"""What is known of the channels of others, by their addresses, when their node dies."""

from __future__ import annotations

import asyncio
import contextlib

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from bridge.broker.connection.address import await_end, is_there
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.machine.inbox.applied import SenderAnswer
from bridge.machine.inbox.arrival import ReplyTo
from bridge.sidecar.shared_connection import SharedConnection
from bridge.wire.headers import DIRECT_REPLY_TO
from tests.brokers.node import CREDENTIALS, Node
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until


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


@pytest.mark.long
async def test_who_was_on_a_dead_node_is_gone_and_ends_no_connection(cluster: Broker) -> None:
    """A question about such a client, or an answer to it, does not end the connection."""
    assert cluster.cluster is not None
    dying, ours, other = cluster.cluster.nodes
    connection = await Connection.open(parse_url(url_of(ours)), name="test")
    shared = SharedConnection(connection)
    await shared.open()
    gone = await asyncio.to_thread(Listener, url_of(dying))
    near = await asyncio.to_thread(Listener, url_of(ours))
    far = await asyncio.to_thread(Listener, url_of(other))
    there = [gone, near, far]
    assert all([await is_there(connection, each.address) for each in there])

    waiting = asyncio.create_task(await_end(connection, gone.address))
    await asyncio.to_thread(dying.kill)
    async with asyncio.timeout(120):
        await waiting

    assert not await is_there(connection, gone.address)
    shared.answer(SenderAnswer(ReplyTo(gone.address, "1"), b"lost"))
    for listener in (near, far):

        def is_heard(listener: Listener = listener) -> bool:
            shared.answer(SenderAnswer(ReplyTo(listener.address, "1"), b"yes"))
            return b"yes" in listener.heard()

        await until(is_heard)  # an answer that is lost is asked for again
    assert await is_there(connection, far.address)
    assert not connection.is_closed
    for listener in there:
        listener.close()
    await connection.close()
