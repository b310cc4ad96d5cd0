"""What one client can do to the others: floods, halves of things, and not reading."""

from __future__ import annotations

import asyncio
import socket
import time
from uuid import uuid4

import pytest

from bridge.gateway.client.admission import ConnectionEnd
from bridge.gateway.server import Gateway
from bridge.machine.amqp10.endpoint import ConnectionState
from bridge.machine.amqp10.limits import Limits
from bridge.wire.amqp10.frame import EMPTY_FRAME, ProtocolHeader, encode_frame
from bridge.wire.amqp10.message import AmqpMessage, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from tests.conformance.client import Client, sas
from tests.conformance.door import KEY
from tests.conformance.probe import check, probing, undisturbed
from tests.conformance.served import client, connections_of, gateway, message, queue_of
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.machine.amqp10.peer import frame

FLOOD_BYTES = 200_000
CLIENTS = 20

TURN_S_MAX = 0.2
"""Twice what is promised, for the tests share their cores; without bounds it takes 0.3 to 1.3."""

SEND_S_MAX = 0.4
"""A send takes several turns, in each of which ten clients flood at once; unbounded, seconds."""

LOGIN = (
    ProtocolHeader.SASL.value
    + encode_frame(0, SaslInit("ANONYMOUS"), frame_type=1)
    + ProtocolHeader.AMQP.value
    + encode_frame(0, Open("storm", hostname="localhost"))
    + encode_frame(0, Begin(None, 0, 5_000, 5_000))
)


def attach(handle: int, address: str, *, role: bool) -> bytes:
    """Return an attach."""
    mine = f"mine-{handle}"
    return frame(
        0,
        Attach(
            name=f"link-{handle}",
            handle=handle,
            role=role,
            source=Source(address if role else mine),
            target=Target(mine if role else address),
            initial_delivery_count=None if role else 0,
        ),
    )


def flow(**fields: object) -> bytes:
    """Return a flow that asks for an answer."""
    values = {"next_incoming_id": 0x40000000, "incoming_window": 5_000, "next_outgoing_id": 0}
    return frame(0, Flow(**values, outgoing_window=5_000, echo=True, **fields))  # type: ignore[arg-type]


def put_token(number: int, key: str = "wrong") -> bytes:
    """Return a request with a token, by default one that is not worth anything."""
    properties = {"operation": "put-token", "type": "x", "name": "sb://localhost/q"}
    request = AmqpMessage(application_properties=properties, value=sas(key=key))
    request.properties = MessageProperties(message_id=uuid4())
    transfer = Transfer(1, number, number.to_bytes(4, "big"), 0, settled=True)
    return frame(0, transfer, encode_message(request))


REPLY_LINKS = attach(1, "$cbs", role=False) + attach(2, "$cbs", role=True)
CREDIT = flow(handle=2, delivery_count=0, link_credit=10_000)
UNIT = {
    "empty frames": EMPTY_FRAME,
    "flows of a session": flow(),
    "flows of a link": flow(handle=2, delivery_count=0, link_credit=100),
    "attach and detach": attach(7, "q", role=True) + frame(0, Detach(7, True, None)),
    "attach and detach of $cbs": attach(7, "$cbs", role=True) + frame(0, Detach(7, True, None)),
    "begin and end": frame(1, Begin(None, 0, 5_000, 5_000)) + frame(1, End()),
    "dispositions": frame(0, Disposition(True, 0x40000000, 0x7FFFFFFF, False, Accepted())),
    "tokens": b"".join(map(put_token, range(40))),
}


def flood_of(unit: bytes) -> bytes:
    """Return so much of something as one client sends at once."""
    return LOGIN + REPLY_LINKS + CREDIT + unit * (FLOOD_BYTES // len(unit) + 1)


async def drain(reader: asyncio.StreamReader) -> None:
    """Read until there is nothing more."""
    try:
        while await reader.read(1_000_000):
            pass
    except ConnectionError:
        pass


@pytest.mark.parametrize("unit", UNIT.values(), ids=UNIT.keys())
@undisturbed
async def test_floods(unit: bytes) -> None:
    """While strangers flood the bridge with one kind of frame, no turn of the loop takes long."""
    flood = flood_of(unit)
    async with gateway(authorization_s=60, turn_s=0.02) as (_, port), client(port) as honest:
        honest.attach(7, "q", role=False)
        await honest.next(Attach, handle=7)
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CLIENTS)]
        reading = [asyncio.create_task(drain(reader)) for reader, _ in pairs]
        with probing() as probe:
            for _, writer in pairs:
                writer.write(flood)
            for _ in range(20):
                honest.transfer(7, message(b"x"))
                await honest.next(Disposition)
        for _, writer in pairs:
            writer.transport.abort()
        await asyncio.gather(*reading)

    check(probe.longest_s, TURN_S_MAX)


KNOWN = {**UNIT, "tokens": b"".join(put_token(number, KEY) for number in range(40))}
KNOWN_CLIENTS = 10


@pytest.mark.parametrize("unit", KNOWN.values(), ids=KNOWN.keys())
@undisturbed
async def test_floods_of_known_clients(unit: bytes) -> None:
    """They have tokens: no turn of the loop takes long, and a send of another client few turns."""
    flood = LOGIN + REPLY_LINKS + CREDIT + put_token(0, KEY) + unit * (FLOOD_BYTES // len(unit) + 1)
    async with gateway() as (served, port), client(port) as honest:
        honest.attach(7, "q", role=False)
        await honest.next(Attach, handle=7)
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(KNOWN_CLIENTS)]
        reading = [asyncio.create_task(drain(reader)) for reader, _ in pairs]
        with probing() as probe:
            for _, writer in pairs:
                writer.write(flood)
            await until(lambda: not served.admission.unauthenticated)
            latest_s = 0.0
            for _ in range(20):
                begin_s = time.thread_time()
                await honest.outcome(honest.transfer(7, message(b"x")))
                latest_s = max(latest_s, time.thread_time() - begin_s)
        for _, writer in pairs:
            writer.transport.abort()
        await asyncio.gather(*reading)

    check(latest_s, SEND_S_MAX)
    check(probe.longest_s, TURN_S_MAX)


async def unread(served: Gateway, port: int) -> Client:
    """Connect a client that asks for much, and reads none of it; sockets hold little."""
    before = set(connections_of(served))
    peer = await (await Client.connect(port)).open()
    assert await peer.put_token(sas()) == 202
    (connection,) = set(connections_of(served)) - before
    assert connection._transport is not None
    bound(connection._transport, socket.SO_SNDBUF)
    transport = peer._writer.transport
    bound(transport, socket.SO_RCVBUF)
    transport.pause_reading()  # type: ignore[attr-defined]
    peer.write(flow() * 40_000)
    return peer


def bound(transport: asyncio.BaseTransport, option: int) -> None:
    """Let one side of a connection hold a few kilobytes, whatever the system's bounds are."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 4_096)


async def test_many_clients_that_read_nothing() -> None:
    """So many at a time; with one more the first of them loses its connection."""
    bounds = {"output_bytes_high": 20_000, "unread_max": 1}
    async with gateway(**bounds) as (served, port), client(port) as honest:
        first = await unread(served, port)
        await until(lambda: len(served.backlog._unread) == 1)
        assert served.admission.ended[ConnectionEnd.UNREAD] == 0
        second = await unread(served, port)
        await until(lambda: served.admission.ended[ConnectionEnd.UNREAD] == 1)
        await until(lambda: len(served.connections) == 2)
        assert await honest.put_token(sas()) == 202
        for peer in (first, second):
            peer._writer.transport.abort()


async def test_half_a_frame_for_ever() -> None:
    """A client that owes the rest of a frame for too long is ended, even if it sends a little."""
    limits = Limits(heartbeat_ms_max=200)
    async with gateway(unfinished_s=0.3, limits=limits) as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        await peer.next(Attach, handle=7)
        peer.write(frame(0, Transfer(7, 1, b"t", 0), bytes(1_000))[:-500])
        begin_s = time.monotonic()
        while not peer.is_closed and time.monotonic() - begin_s < WITHIN_S:
            peer.write(b"\0")
            await asyncio.sleep(0.05)

        assert peer.is_closed
        assert served.admission.ended[ConnectionEnd.UNFINISHED] == 1


async def test_half_a_message_for_ever() -> None:
    """A client that owes the rest of a message is ended, even if other links have whole ones."""
    limits = Limits(heartbeat_ms_max=200)
    async with gateway(unfinished_s=0.5, limits=limits) as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        peer.attach(8, "q", role=False)
        peer.transfer(7, b"", more=True)
        begin_s = time.monotonic()
        while not peer.is_closed and time.monotonic() - begin_s < WITHIN_S:
            peer.transfer(8, message(b"x"))
            await asyncio.sleep(0.05)

        assert peer.is_closed
        assert served.admission.ended[ConnectionEnd.UNFINISHED] == 1
        assert queue_of(served).active


async def test_unfinished_messages_of_many() -> None:
    """All connections together hold so much of unfinished messages; the oldest are ended."""
    bound, part, count = 1_000_000, bytes(100_000), 30
    async with gateway(unfinished_bytes_max=bound) as (served, port), client(port) as honest:
        honest.attach(7, "q", role=False)
        await honest.next(Attach, handle=7)
        peers = []
        for _ in range(count):
            peer = await (await Client.connect(port)).open()
            peers.append(peer)
            assert await peer.put_token(sas()) == 202
            peer.attach(7, "q", role=False)
            peer.transfer(7, part, more=True)
            assert served.backlog.unfinished_bytes <= bound
        await until(lambda: served.admission.ended[ConnectionEnd.UNFINISHED] >= count - 10)
        honest.transfer(7, message(b"x"))
        await honest.next(Disposition)
        await peers[0].closed()
        assert not peers[-1].is_closed
        for peer in peers:
            await peer.close()
        await until(lambda: served.backlog.unfinished_bytes == 0)


async def test_a_client_that_reads_nothing() -> None:
    """Its answers fill a bounded buffer, then nothing is read from it; in the end it is closed."""
    bounds = {"output_bytes_high": 100_000, "unread_s": 1.0}
    async with gateway(**bounds) as (served, port), client(port) as peer:
        (connection,) = connections_of(served)
        peer._writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.write(flow() * 1_000_000)
        await until(lambda: connection.is_choked)
        transport = connection._transport
        assert transport is not None
        largest = 0

        def watched() -> bool:
            nonlocal largest
            largest = max(largest, transport.get_write_buffer_size())
            return not served.connections

        await until(watched)
        assert largest < 1_000_000
        peer._writer.transport.abort()
        assert served.admission.ended[ConnectionEnd.UNREAD] == 1


async def test_what_comes_after_a_fault() -> None:
    """Bytes that a client sends after its connection has failed are skipped, not kept."""
    async with gateway() as (served, port), client(port) as peer:
        (connection,) = connections_of(served)
        peer.write(b"\xff" * 8)
        await until(lambda: connection._endpoint.state is ConnectionState.FINISHED)
        for _ in range(50):
            peer.write(bytes(100_000))
        await asyncio.sleep(0.1)

        assert connection._endpoint.unfinished_bytes < 100_000
        assert len(connection._input) < 300_000
