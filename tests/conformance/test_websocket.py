"""AMQP over WebSockets: the same connection, and the same bounds, as over TCP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridge.gateway.client.admission import ConnectionEnd
from bridge.wire.amqp10.performatives import Accepted, Attach, Close, Disposition, Transfer
from tests.conformance.client import Client, sas
from tests.conformance.probe import check, undisturbed
from tests.conformance.served import client, client_tls, gateway, message, queue_of, server_tls
from tests.conformance.test_storms import TURN_S_MAX, flood_of, flow, probing
from tests.conformance.web import (
    CLOSE,
    PING,
    PONG,
    UPGRADE,
    WebSocket,
    answer_to,
    masked,
    stream_of,
    web_client,
)
from tests.fixtures.waiting import until

WIDE = bytes(200_000)


@asynccontextmanager
async def known(port: int, *, piece: int = 0) -> AsyncIterator[Client]:
    """A client over a WebSocket that has put a token and may send on link 7."""
    peer = await web_client(port, piece=piece)
    try:
        assert await peer.put_token(sas()) == 202
        peer.attach(7, "q", role=False)
        await peer.next(Attach, handle=7)
        yield peer
    finally:
        await peer.close()


@pytest.mark.parametrize("piece", [0, 1, 7, 100])
async def test_frames_of_amqp_are_cut_anywhere(piece: int) -> None:
    """A WebSocket's frame holds part of a frame of AMQP, or several."""
    async with gateway() as (served, port), known(port, piece=piece) as peer:
        number = peer.transfer(7, message(b"x" * 3_000))
        assert isinstance(await peer.outcome(number), Accepted)
        assert len(queue_of(served).active) == 1
        peer.attach(8, "q", role=True)
        peer.credit(8, 1)
        _, payload = await peer.next(Transfer, handle=8)
        assert payload.endswith(b"x" * 3_000)


async def test_in_tls(certified: tuple[Path, Path]) -> None:
    """On the port that takes both, and with a close that both ends say."""
    async with gateway(tls=server_tls(certified)) as (served, port):
        for tls in (None, client_tls(certified)):
            peer = await web_client(port, tls=tls)
            assert await peer.put_token(sas()) == 202
            peer.send(Close())
            await peer.next(Close)
            await peer.closed()
            assert stream_of(peer).frames == [(CLOSE, b"\x03\xe8")]
            await peer.close()
        await until(lambda: not served.admission.connections)
        assert not served.connections.others
        assert sum(served.admission.ended.values()) == 0


async def test_a_large_message_both_ways() -> None:
    """200 kB in one frame of a WebSocket, and back."""
    async with gateway() as (_, port), known(port) as peer:
        assert isinstance(await peer.outcome(peer.deliver(7, message(WIDE))), Accepted)
        peer.attach(8, "q", role=True)
        peer.credit(8, 1)
        _, payload = await peer.next(Transfer, handle=8)
        assert payload.endswith(WIDE)


async def test_a_message_above_the_limit() -> None:
    """It is refused as over TCP, and the connection goes on."""
    async with gateway(message_bytes_max=50_000) as (_, port), known(port) as peer:
        refused = await peer.outcome(peer.deliver(7, message(WIDE)))
        assert refused.error.condition == "amqp:link:message-size-exceeded"
        assert await peer.put_token(sas()) == 202


async def test_a_ping_is_answered() -> None:
    """With what it said; a pong that was not asked for is passed over."""
    async with gateway() as (_, port), known(port) as peer:
        below = stream_of(peer)
        below.send(masked(b"hello", opcode=PING) + masked(b"", opcode=PONG))
        assert await peer.put_token(sas()) == 202
        assert below.frames == [(PONG, b"hello")]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (masked(b"x", opcode=1), 1003),
        (b"\x82\x03abc", 1002),
        (masked(b"\x03\xe8", opcode=CLOSE), 1000),
    ],
    ids=["text", "not masked", "close"],
)
async def test_a_close_is_said(said: bytes, code: int) -> None:
    """After a frame that may not be sent, or the client's own close, with the reason."""
    async with gateway() as (served, port), known(port) as peer:
        stream_of(peer).send(said)
        await peer.closed()
        assert stream_of(peer).frames == [(CLOSE, code.to_bytes(2, "big"))]
        await until(lambda: not served.admission.connections)
        assert served.admission.ended[ConnectionEnd.FAULT] == (code != 1000)


async def test_the_registered_subprotocol() -> None:
    """A client that offers `amqp`, as Go programs do, gets it."""
    async with gateway() as (_, port):
        peer = await WebSocket.connect(port, subprotocol=b"mqtt, amqp")
        peer.close()


@pytest.mark.parametrize(
    "said",
    [
        UPGRADE.replace(b"AMQPWSB10", b"mqtt"),
        UPGRADE.replace(b"Sec-WebSocket-Protocol: AMQPWSB10\r\n", b""),
        UPGRADE.replace(b"Version: 13", b"Version: 1"),
        UPGRADE.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"short"),
        UPGRADE.replace(b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b""),
    ],
    ids=["another subprotocol", "no subprotocol", "version", "key", "no upgrade"],
)
async def test_an_upgrade_that_is_none(said: bytes) -> None:
    """It is answered with 400, and its connection ends."""
    async with gateway() as (served, port):
        assert (await answer_to(port, said)).startswith(b"HTTP/1.1 400 ")
        await until(lambda: not served.admission.connections)


@pytest.mark.parametrize("said", [b"", masked(b"AMQP"), b"\x82\xff"], ids=["", "4 bytes", "head"])
async def test_an_upgrade_and_nothing_more(said: bytes) -> None:
    """A client without a token in time is disconnected and counted, after any request."""
    async with gateway(authorization_s=0.3) as (served, port):
        peer = await WebSocket.connect(port)
        peer.send(said)
        async with asyncio.timeout(120):
            while await peer.read():
                pass
        peer.close()
        await until(lambda: not served.admission.connections)
        assert served.admission.ended[ConnectionEnd.UNAUTHENTICATED] == 1
        assert not served.connections.others


async def test_a_stranger_over_a_websocket_has_little() -> None:
    """A frame of AMQP above what a login needs ends the connection, whatever frames it is in."""
    async with gateway() as (served, port):
        peer = await web_client(port, piece=1_000)
        peer.attach(0, "$cbs", role=False)
        peer.transfer(0, bytes(70_000))
        close = await peer.next(Close)
        await peer.closed()
        await peer.close()
        assert close.error is not None
        assert served.admission.ended[ConnectionEnd.LOGIN] == 1


async def test_a_client_over_a_websocket_that_reads_nothing() -> None:
    """Its answers fill a bounded buffer, then it is not read from; in the end it is closed."""
    bounds = {"output_bytes_high": 100_000, "unread_s": 1.0}
    async with gateway(**bounds) as (served, port):
        peer = await web_client(port)
        assert await peer.put_token(sas()) == 202
        connection = next(iter(served.connections))
        transport = stream_of(peer).transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        transport.pause_reading()  # type: ignore[attr-defined]
        unit = masked(flow() * 1_000)
        stream_of(peer).send(unit * 400)
        await until(lambda: connection.is_choked)
        held = next(iter(served.connections.others)).get_protocol()
        assert len(held._input) < 1_000_000  # type: ignore[attr-defined, union-attr]
        await until(lambda: not served.connections)
        transport.abort()
        assert served.admission.ended[ConnectionEnd.UNREAD] == 1


FLOODS: dict[str, Callable[[], bytes]] = {
    "flows": lambda: masked(flood_of(flow())),
    "a byte a frame": lambda: b"".join(
        masked(bytes((each,))) for each in flood_of(flow())[:30_000]
    ),
    "empty frames": lambda: masked(b"") * 30_000,
    "pings": lambda: masked(b"x", opcode=PING) * 30_000,
}
"""Made by their test: every worker reads this module."""


@pytest.mark.parametrize("make_flood", FLOODS.values(), ids=FLOODS.keys())
@undisturbed
async def test_floods_over_websockets(make_flood: Callable[[], bytes]) -> None:
    """While strangers flood the bridge with frames, no turn of the loop takes long."""
    flood = make_flood()
    async with gateway(authorization_s=60) as (_, port), client(port) as honest:
        honest.attach(7, "q", role=False)
        await honest.next(Attach, handle=7)
        peers = [await WebSocket.connect(port) for _ in range(20)]
        with probing() as probe:
            for peer in peers:
                peer.send(flood)
            for _ in range(20):
                honest.transfer(7, message(b"x"))
                await honest.next(Disposition)
        for peer in peers:
            peer.transport.abort()

    check(probe.longest_s, TURN_S_MAX)


async def test_a_stop_answers_what_was_stored() -> None:
    """All that was taken is answered, then the connection says that the bridge stops."""
    async with gateway() as (served, port), known(port) as peer:
        numbers = [peer.transfer(7, message(b"x")) for _ in range(100)]
        await until(lambda: queue_of(served).active)
        stopping = asyncio.create_task(served.stop())
        close = await peer.next(Close)
        peer.send(Close())
        await stopping
        stored = len(queue_of(served).active)
        accepted = [
            number
            for number in numbers
            if any(
                isinstance(each, Disposition)
                and each.first <= number <= (each.first if each.last is None else each.last)
                for each, _ in peer.frames
            )
        ]
        await peer.closed()

        assert close.error.condition == "amqp:connection:forced"
        assert len(accepted) == stored
        assert stream_of(peer).frames == [(CLOSE, b"\x03\xe8")]
