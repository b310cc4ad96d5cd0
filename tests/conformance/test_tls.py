"""TLS costs strangers more than it costs others: handshakes, tiny records, answers left unread."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bridge.gateway.client.admission import ConnectionEnd
from bridge.gateway.server import Gateway
from bridge.wire.amqp10.performatives import Attach, Disposition
from tests.conformance.client import Client, sas
from tests.conformance.probe import check, undisturbed
from tests.conformance.served import client, client_tls, gateway, message, server_tls
from tests.conformance.test_storms import TURN_S_MAX, flood_of, flow, probing
from tests.conformance.web import masked, stream_of, web_client
from tests.fixtures.waiting import until

STRANGERS = 60

RECORDS = 8_000


@asynccontextmanager
async def secured(
    certified: tuple[Path, Path], **settings: object
) -> AsyncIterator[tuple[Gateway, int, ssl.SSLContext]]:
    """A gateway with TLS, its port, and what a client trusts it by."""
    async with gateway(tls=server_tls(certified), unauthenticated_max=1_000, **settings) as (
        served,
        port,
    ):
        yield served, port, client_tls(certified)


async def sends(honest: Client, count: int) -> None:
    """A client that sends one message after the other."""
    for _ in range(count):
        honest.transfer(7, message(b"x"))
        await honest.next(Disposition)


class Stranger:
    """A TLS client that makes its records itself."""

    def __init__(self, trusting: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trusting.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def connect(self, port: int) -> None:
        """Shake hands."""
        reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            with suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                break
            self.writer.write(self._outgoing.read())
            self._incoming.write(await reader.read(65_536))
        self.writer.write(self._outgoing.read())

    def records(self, data: bytes) -> bytes:
        """Return data with a record for each byte."""
        for at in range(len(data)):
            self._tls.write(data[at : at + 1])
        return self._outgoing.read()

    def hello(self) -> bytes:
        """Return what begins a handshake."""
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()


@undisturbed
async def test_floods_of_tiny_records(certified: tuple[Path, Path]) -> None:
    """While strangers send a byte a record, no turn of the loop takes long."""
    async with (
        secured(certified, authorization_s=60) as (_, port, trusting),
        client(port) as honest,
    ):
        honest.attach(7, "q", role=False)
        await honest.next(Attach, handle=7)
        strangers = [Stranger(trusting) for _ in range(STRANGERS)]
        for stranger in strangers:
            await stranger.connect(port)
        data = flood_of(flow())[:RECORDS]
        floods = [stranger.records(data) for stranger in strangers]
        with probing() as probe:
            for stranger, flood in zip(strangers, floods, strict=True):
                stranger.writer.write(flood)
            await sends(honest, 20)
        for stranger in strangers:
            stranger.writer.transport.abort()

    check(probe.longest_s, TURN_S_MAX)


@undisturbed
async def test_floods_of_handshakes(certified: tuple[Path, Path]) -> None:
    """Nor while a hundred begin a handshake at once, which costs the bridge a signature each."""
    async with (
        secured(certified, authorization_s=60) as (_, port, trusting),
        client(port) as honest,
    ):
        honest.attach(7, "q", role=False)
        await honest.next(Attach, handle=7)
        hello = Stranger(trusting).hello()
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        with probing() as probe:
            for _, writer in pairs:
                writer.write(hello)
            await sends(honest, 20)
        for _, writer in pairs:
            writer.transport.abort()

    check(probe.longest_s, TURN_S_MAX)


async def test_much_before_and_after_a_token(certified: tuple[Path, Path]) -> None:
    """The small buffer of a stranger holds up nobody: a large message comes right after."""
    async with secured(certified) as (_, port, trusting):
        for connecting in (Client.connect, web_client):
            peer = await connecting(port, tls=trusting)  # type: ignore[operator]
            if connecting is not web_client:
                await peer.open()
            assert await peer.put_token(sas()) == 202
            peer.attach(7, "q", role=False)
            await peer.next(Attach, handle=7)
            for _ in range(5):
                await peer.outcome(peer.deliver(7, message(bytes(500_000))))
            await peer.close()


@pytest.mark.parametrize("is_websocket", [False, True], ids=["AMQP", "WebSocket"])
async def test_answers_left_unread(certified: tuple[Path, Path], is_websocket: bool) -> None:
    """A client that does not read in TLS is not read from, and in the end cut off, as over TCP."""
    bounds = {"output_bytes_high": 100_000, "unread_s": 1.0}
    async with secured(certified, **bounds) as (served, port, trusting):
        if is_websocket:
            peer = await web_client(port, tls=trusting)
            transport = stream_of(peer).transport
        else:
            peer = await (await Client.connect(port, tls=trusting)).open()
            transport = peer._writer.transport
        assert await peer.put_token(sas()) == 202
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        transport.pause_reading()  # type: ignore[attr-defined]
        flood = flow() * 400_000
        (stream_of(peer).send(masked(flood)) if is_websocket else transport.write(flood))
        await until(lambda: served.admission.ended[ConnectionEnd.UNREAD] == 1, within_s=120)
        await until(lambda: not served.admission.connections)
        transport.abort()
