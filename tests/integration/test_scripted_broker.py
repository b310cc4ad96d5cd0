"""The client against a peer that errs, is silent, or answers in an order that is rare."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pamqp.commands as spec
import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import (
    BrokerError,
    BrokerSilent,
    ChannelClosed,
    ConnectionLost,
    PublishRefused,
    Unroutable,
)
from bridge.broker.handover import HandOver, Publish
from bridge.wire.basic import Properties
from tests.integration.scripted_broker import Peer, scripted_broker

PLAIN = Properties().encode()
WITHIN_S = 120.0


async def opened(endpoint: Any, **options: float) -> tuple[Connection, Channel]:
    """Return a connection and a channel on it."""
    connection = await Connection.open(endpoint, name="test", **options)  # type: ignore[arg-type]
    return connection, await connection.channel()


async def publish(channel: Channel) -> None:
    """Publish a message and wait for its confirm; a closed channel says so when it is awaited."""
    await channel.publisher.publish_confirmed("", "q", PLAIN, b"")


async def barrier(channel: Channel) -> None:
    """Wait for a barrier; a closed channel says so when it is awaited."""
    await channel.barrier()


async def test_confirms_in_any_order_settle_each_publish_once() -> None:
    """Single and multiple acks and nacks, shuffled as mixed targets shuffle them."""
    chance = random.Random(7)
    count = 400
    expected: dict[int, bool] = {}

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel(confirms=True)
        for _ in range(count):
            await peer.expect(spec.Basic.Publish)
        left = list(range(1, count + 1))
        while left:
            is_ack = chance.random() < 0.7
            method = spec.Basic.Ack if is_ack else spec.Basic.Nack
            if chance.random() < 0.2:
                upto = chance.choice(left)
                settled = [number for number in left if number <= upto]
                peer.send(method(upto, True))
            else:
                settled = [chance.choice(left)]
                peer.send(method(settled[0], False))
            for number in settled:
                left.remove(number)
                expected[number] = is_ack

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint)
        await channel.publisher.confirm_select()
        outcomes: list[tuple[int, bool]] = []
        everything = asyncio.Event()

        def settled(number: int, error: BrokerError | None) -> None:
            assert error is None or isinstance(error, PublishRefused)
            outcomes.append((number, error is None))
            if len(outcomes) == count:
                everything.set()

        for expected_number in range(1, count + 1):
            number = channel.publisher.publish(
                "",
                "q",
                PLAIN,
                b"",
                settled=lambda error, number=expected_number: settled(number, error),  # type: ignore[misc]
            )
            assert number == expected_number
        await asyncio.wait_for(everything.wait(), WITHIN_S)

        assert sorted(outcomes) == sorted(expected.items())
        assert channel.publisher.unconfirmed == 0
        await connection.close()


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        # Equal bodies: told apart by their properties.
        ([("b", b"same")], [None, Unroutable, None, None]),
        ([("a", b"same"), ("b", b"same")], [Unroutable, Unroutable, None, None]),
        # Equal in everything: in the order of publishing.
        ([("c", b"twin")], [None, None, Unroutable, None]),
        ([("c", b"twin"), ("c", b"twin")], [None, None, Unroutable, Unroutable]),
        # Like none in its properties: one of those with its body, or with its route, but which?
        ([("z", b"same")], [BrokerError, BrokerError, None, None]),
        ([("z", b"other")], [BrokerError] * 4),
    ],
)
async def test_a_return_is_paired_with_its_publish(
    returned: list[tuple[str, bytes]], expected: list[type[BrokerError] | None]
) -> None:
    """RabbitMQ confirms a returned message; it is a failure all the same, and only that one is.

    Where several may be meant, none is told that it was refused.
    """

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel(confirms=True)
        for _ in range(4):
            await peer.expect(spec.Basic.Publish)
        for message_id, body in returned:
            method = spec.Basic.Return(312, "NO_ROUTE", "x", "k")
            peer.send_message(method, body, spec.Basic.Properties(message_id=message_id))
        peer.send(spec.Basic.Ack(4, True))

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint)
        await channel.publisher.confirm_select()
        sent = [("a", b"same"), ("b", b"same"), ("c", b"twin"), ("c", b"twin")]
        outcomes = await asyncio.wait_for(
            asyncio.gather(
                *(
                    channel.publisher.publish_confirmed(
                        "x", "k", Properties(message_id=name).encode(), body
                    )
                    for name, body in sent
                ),
                return_exceptions=True,
            ),
            WITHIN_S,
        )

        assert [None if each is None else type(each) for each in outcomes] == expected
        await connection.close()


async def test_a_publish_that_is_never_confirmed_closes_its_channel() -> None:
    """After the deadline the channel is closed and every unconfirmed publish fails."""

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel(confirms=True)
        await peer.expect(spec.Channel.Close)
        peer.send(spec.Channel.CloseOk())

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint, confirm_timeout_s=0.2)
        await channel.publisher.confirm_select()

        with pytest.raises(BrokerSilent, match="no confirm"):
            await asyncio.wait_for(
                channel.publisher.publish_confirmed("", "q", PLAIN, b""), WITHIN_S
            )

        assert isinstance(channel.close_reason, BrokerSilent)
        assert not connection.is_closed
        await connection.close()


async def test_a_publish_waits_for_its_confirm_while_rabbitmq_is_blocked() -> None:
    """An alarm may last longer than the deadline; the publish is confirmed after it."""
    is_late = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel(confirms=True)
        peer.send(spec.Connection.Blocked("low on memory"), 0)
        await is_late.wait()
        peer.send(spec.Connection.Unblocked(), 0)
        peer.send(spec.Basic.Ack(1, False))

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint, confirm_timeout_s=0.2)
        states: list[tuple[bool, str]] = []
        connection.on_blocked = lambda is_blocked, reason: states.append((is_blocked, reason))
        await channel.publisher.confirm_select()
        publish = asyncio.ensure_future(channel.publisher.publish_confirmed("", "q", PLAIN, b""))
        _, pending = await asyncio.wait((publish,), timeout=0.6)
        assert pending
        assert connection.is_blocked
        is_late.set()
        await asyncio.wait_for(publish, WITHIN_S)

        assert states == [(True, "low on memory"), (False, "")]
        assert not connection.is_blocked
        await connection.close()


async def test_a_look_for_a_target_waits_while_rabbitmq_is_blocked() -> None:
    """An alarm may last longer than an answer may take; the look is answered after it."""
    is_late = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel(confirms=True)
        peer.send(spec.Connection.Blocked("low on memory"), 0)
        await is_late.wait()
        peer.send(spec.Connection.Unblocked(), 0)
        peer.send(spec.Basic.Ack(1, False))
        while True:
            await peer.expect(spec.Channel.Flow)
            peer.send(spec.Channel.FlowOk(True))

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint, timeout_s=0.2)
        await channel.publisher.confirm_select()
        outcomes: asyncio.Queue[BrokerError | None] = asyncio.Queue()
        publishes = [Publish("x", "", PLAIN, b"")]
        HandOver(channel).submit(
            publishes, targets=("q",), done=outcomes.put_nowait, failpoint="test.hop"
        )
        await asyncio.sleep(0.6)
        assert outcomes.empty()
        is_late.set()
        assert await asyncio.wait_for(outcomes.get(), WITHIN_S) is None
        await connection.close()


async def test_a_silent_peer_is_noticed() -> None:
    """No bytes for two heartbeat intervals end the connection, and all that waits on it."""

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel()

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint, heartbeat_s=0.2)
        with pytest.raises(ConnectionLost, match="silent"):
            await asyncio.wait_for(channel.barrier(), WITHIN_S)

        assert connection.is_closed
        assert isinstance(channel.close_reason, ConnectionLost)


async def test_heartbeats_are_sent_when_nothing_else_is() -> None:
    """A peer that only listens hears from the client again and again."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def script(peer: Peer) -> None:
        await peer.log_in()
        for _ in range(4):
            heard.put_nowait(await peer._reader.readexactly(8))
            peer.writer.write(b"\x08\0\0\0\0\0\0\xce")

    async with scripted_broker(script) as endpoint:
        connection = await Connection.open(endpoint, name="test", heartbeat_s=0.2)
        for _ in range(4):
            assert await asyncio.wait_for(heard.get(), WITHIN_S) == b"\x08\0\0\0\0\0\0\xce"

        assert not connection.is_closed
        await connection.close()


async def test_an_answer_that_never_comes_has_a_deadline() -> None:
    """The question fails with BrokerSilent; the connection stays."""

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel()

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint, timeout_s=0.2)
        with pytest.raises(BrokerSilent, match="within"):
            await channel.declarations.declare_queue("q")

        assert not connection.is_closed
        await connection.close()


async def test_a_login_that_never_ends_has_a_deadline() -> None:
    """A peer that accepts and says nothing is given up, and the next host is tried."""

    async def silent(peer: Peer) -> None:
        await peer._reader.readexactly(8)

    async def polite(peer: Peer) -> None:
        await peer.log_in()

    async with scripted_broker(silent) as one, scripted_broker(polite) as two:
        both = type(one)(hosts=one.hosts + two.hosts)
        connection = await Connection.open(both, name="test", open_timeout_s=0.3)
        await connection.close()
        with pytest.raises(ConnectionLost, match="did not answer"):
            await Connection.open(one, name="test", open_timeout_s=0.3)


async def test_a_consumer_is_cancelled_once() -> None:
    """RabbitMQ 4.3 may cancel twice and still deliver: told once, and delivered."""
    delivered: asyncio.Queue[Delivery] = asyncio.Queue()

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel()
        consume = await peer.expect(spec.Basic.Consume)
        tag = consume.consumer_tag
        peer.send(spec.Basic.ConsumeOk(tag))
        peer.send(spec.Basic.Cancel(tag, True))
        peer.send(spec.Basic.Cancel(tag, True))
        deliver = spec.Basic.Deliver(tag, 1, True, "", "q")
        peer.send_message(deliver, b"late", spec.Basic.Properties())

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint)
        cancelled: list[str] = []
        tag = await channel.consumers.consume("q", delivered.put_nowait, on_cancel=cancelled.append)
        delivery = await asyncio.wait_for(delivered.get(), WITHIN_S)

        assert delivery.body == b"late"
        assert cancelled == [tag]
        await connection.close()


def _garbage() -> dict[str, bytes]:
    return {
        "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "version refused": b"AMQP\x00\x00\x09\x01",
        "unknown frame type": b"\x05\x00\x01\x00\x00\x00\x00\xce",
        "wrong end": b"\x01\x00\x01\x00\x00\x00\x04\x00\x14\x00\x0b\x00",
        "giant frame": b"\x01\x00\x01\xff\xff\xff\xff" + b"\x00" * 20,
        "unknown channel": b"\x01\x00\x09\x00\x00\x00\x04\x00\x14\x00\x0b\xce",
        "unknown method": b"\x01\x00\x01\x00\x00\x00\x04\x00\x14\xff\xff\xce",
        "short method": b"\x01\x00\x01\x00\x00\x00\x02\x00\x14\xce",
        "an answer to nothing": b"\x01\x00\x01\x00\x00\x00\x04\x00\x14\x00\x0b\xce",
        "a header without a method": b"\x02\x00\x01\x00\x00\x00\x0e" + b"\0" * 14 + b"\xce",
        "a body without a header": b"\x03\x00\x01\x00\x00\x00\x01x\xce",
        "content on channel 0": b"\x03\x00\x00\x00\x00\x00\x01x\xce",
        "a confirm out of range": b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50"
        + (99).to_bytes(8, "big")
        + b"\x00\xce",
        "an unknown consumer": b"\x01\x00\x01\x00\x00\x00\x11\x00\x3c\x00\x3c\x01z"
        + b"\0" * 7
        + b"\x01\x00\x00\x00\xce",
        "noise": random.Random(3).randbytes(300),
    }


@pytest.mark.parametrize("raw", _garbage().values(), ids=_garbage())
async def test_garbage_ends_the_connection_and_nothing_else(raw: bytes) -> None:
    """Any bytes end it: waiting calls end with ConnectionLost, and no exception escapes."""

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel(confirms=True)
        peer.writer.write(raw)
        peer.writer.write(b"\0" * 20)

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint)
        await channel.publisher.confirm_select()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(channel.barrier(), WITHIN_S)
        assert connection.is_closed


@pytest.mark.parametrize("seed", range(20))
async def test_broken_streams_never_hang(seed: int) -> None:
    """A stream of valid frames with bytes changed, lost or cut ends in an answer or an error."""
    chance = random.Random(seed)

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel(confirms=True)
        frames = bytearray()
        peer.writer, kept = _Recorder(frames), peer.writer  # type: ignore[assignment]
        for number in range(1, 30):
            peer.send(spec.Basic.Ack(number, chance.random() < 0.5))
            peer.send_message(
                spec.Basic.Deliver("tag", number, False, "x", "k"),
                os.urandom(chance.randrange(50)),
                spec.Basic.Properties(headers={"k": number}),
            )
        peer.send(spec.Channel.FlowOk(True))
        for _ in range(chance.randrange(1, 6)):
            frames[chance.randrange(len(frames))] = chance.randrange(256)
        if chance.random() < 0.5:
            del frames[chance.randrange(len(frames)) :]
        kept.write(bytes(frames))
        await kept.drain()
        kept.close()

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint)
        await channel.publisher.confirm_select()
        publishes = [asyncio.ensure_future(publish(channel)) for _ in range(30)]
        outcomes = await asyncio.wait_for(
            asyncio.gather(barrier(channel), *publishes, return_exceptions=True), WITHIN_S
        )

        assert all(each is None or isinstance(each, BrokerError) for each in outcomes)
        await asyncio.wait_for(connection.closed.wait(), WITHIN_S)


class _Recorder:
    def __init__(self, frames: bytearray) -> None:
        self.write = frames.extend

    def close(self) -> None:
        pass


Use = Callable[[Channel], Awaitable[object]]

USES: dict[str, Use] = {
    "declare": lambda channel: channel.declarations.declare_queue("q"),
    "consume": lambda channel: channel.consumers.consume("q", lambda delivery: None),
    "get": lambda channel: channel.consumers.get("q"),
    "qos": lambda channel: channel.consumers.qos(5),
    "barrier": lambda channel: channel.barrier(),
    "cancel": lambda channel: channel.consumers.cancel("tag"),
    "publish": lambda channel: channel.publisher.publish_confirmed("", "q", PLAIN, b"x"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_a_lost_connection_ends_what_waits(use: Use) -> None:
    """Nothing that waits for an answer outlives its connection."""

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel(confirms=True)
        await peer.read()
        peer.writer.transport.abort()

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint)
        await channel.publisher.confirm_select()
        told: list[BrokerError] = []
        channel.on_closed = told.append
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(use(channel), WITHIN_S)

        assert connection.is_closed
        assert told == [channel.close_reason]
        with pytest.raises(ConnectionLost):
            await use(channel)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_a_closed_channel_ends_what_waits(use: Use) -> None:
    """RabbitMQ's reason reaches everything that waited on the channel; the connection stays."""

    async def script(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel(confirms=True)
        await peer.read()
        peer.send(spec.Channel.Close(541, "INTERNAL_ERROR", 0, 0))
        await peer.expect(spec.Channel.CloseOk)

    async with scripted_broker(script) as endpoint:
        connection, channel = await opened(endpoint)
        await channel.publisher.confirm_select()
        with pytest.raises(ChannelClosed, match="541 INTERNAL_ERROR"):
            await asyncio.wait_for(use(channel), WITHIN_S)
        with pytest.raises(ChannelClosed):
            await use(channel)

        assert not connection.is_closed
        await connection.close()
