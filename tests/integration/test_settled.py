"""When a client is told that a message is completed: as soon as the kernel has the ack."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pamqp.commands as spec
import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError
from bridge.wire.basic import Properties
from tests.brokers.certificates import make_certificates
from tests.integration.scripted_broker import Peer, scripted_broker

PLAIN = Properties().encode()
COUNT = 5
WITHIN_S = 120.0

CHUNK = bytes(1 << 20)
CHUNKS = 24
"""More than the sockets' buffers of two processes on one machine take."""

TURNS = 50

Contexts = tuple[ssl.SSLContext, ssl.SSLContext] | None


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """A server's and a client's side of TLS."""
    folder: Path = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "server.pem", folder / "server.key")
    return server, ssl.create_default_context(cafile=str(folder / "ca.pem"))


@pytest.fixture(params=["plain", "tls"])
def contexts(request: pytest.FixtureRequest) -> Contexts:
    """Without TLS and with it."""
    if request.param == "plain":
        return None
    found: Contexts = request.getfixturevalue("tls")
    return found


async def deliver(peer: Peer) -> None:
    """Log a client in and give it messages."""
    await peer.log_in()
    await peer.open_channel()
    consume = await peer.expect(spec.Basic.Consume)
    peer.send(spec.Basic.ConsumeOk(consume.consumer_tag))
    for tag in range(1, COUNT + 1):
        method = spec.Basic.Deliver(consume.consumer_tag, tag, False, "", "q")
        peer.send_message(method, b"", spec.Basic.Properties())


async def consuming(endpoint: Endpoint) -> tuple[Connection, Channel, list[Delivery]]:
    """Return a connection, a channel, and the messages that have come on it."""
    connection = await Connection.open(endpoint, name="test")
    channel = await connection.channel()
    taken: list[Delivery] = []
    full = asyncio.Event()

    def take(delivery: Delivery) -> None:
        taken.append(delivery)
        if len(taken) == COUNT:
            full.set()

    await channel.consumers.consume("q", take)
    await asyncio.wait_for(full.wait(), WITHIN_S)
    return connection, channel, taken


async def test_rabbitmq_need_not_say_anything(contexts: Contexts) -> None:
    """The acks of a turn leave in one write; whoever waits is told in this turn and the next."""
    acked: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        await deliver(peer)
        acks = [await peer.expect(spec.Basic.Ack) for _ in range(2)]
        acked.set_result([ack.delivery_tag for ack in acks])

    async with scripted_broker(script, tls=contexts and contexts[0]) as endpoint:
        connection, channel, taken = await consuming(client_of(endpoint, contexts))
        told: list[BrokerError | None] = []
        for delivery in (taken[0], taken[1], taken[3]):
            channel.consumers.ack(delivery.tag)
            channel.when_written(told.append)
        assert told == []
        for _ in range(2):
            await asyncio.sleep(0)
        assert told == [None] * 3
        assert await asyncio.wait_for(acked, WITHIN_S) == [2, 4]
        await connection.close()


async def test_where_the_socket_would_block_it_waits(contexts: Contexts) -> None:
    """Nobody is told while the ack is in this process only."""
    may_read = asyncio.Event()

    async def script(peer: Peer) -> None:
        await deliver(peer)
        await may_read.wait()
        await peer.expect(spec.Basic.Ack)

    async with scripted_broker(script, tls=contexts and contexts[0]) as endpoint:
        connection, channel, taken = await consuming(client_of(endpoint, contexts))
        is_told = asyncio.Event()
        for _ in range(CHUNKS):
            channel.publisher.publish("", "q", PLAIN, CHUNK)
        channel.consumers.ack(taken[0].tag)
        channel.when_written(lambda error: is_told.set())
        for _ in range(TURNS):
            await asyncio.sleep(0.001)
        assert not is_told.is_set()
        may_read.set()
        await asyncio.wait_for(is_told.wait(), WITHIN_S)
        await connection.close()


async def test_whoever_waits_hears_of_the_end() -> None:
    """Of the channel or the connection: it is not known whether RabbitMQ has the ack."""

    async def script(peer: Peer) -> None:
        await deliver(peer)
        await asyncio.Event().wait()

    async with scripted_broker(script) as endpoint:
        connection, channel, taken = await consuming(endpoint)
        told: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        for _ in range(CHUNKS):
            channel.publisher.publish("", "q", PLAIN, CHUNK)
        channel.consumers.ack(taken[0].tag)
        channel.when_written(told.set_result)
        connection.flush()
        await connection.close()
        assert await asyncio.wait_for(told, WITHIN_S) is connection.close_reason
        with pytest.raises(BrokerError):
            channel.when_written(lambda error: None)


def client_of(endpoint: Endpoint, contexts: Contexts) -> Endpoint:
    """Return the endpoint as a client speaks to it."""
    return Endpoint(hosts=endpoint.hosts, tls=contexts and contexts[1])
