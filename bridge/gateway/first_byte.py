"""Detection of a client's protocol by the first byte: TLS, HTTP or AMQP.

TLS must be known before a transport is made: the bridge peeks at the byte and leaves it in the
socket. HTTP and AMQP are distinguished by the first byte that a transport reads, inside TLS or
without TLS.
"""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from bridge.gateway.client.admission import ConnectionEnd, Visit
from bridge.gateway.client.connections import Connections
from bridge.gateway.connection.connection import ClientConnection
from bridge.gateway.http.site import Site

_TLS_HANDSHAKE = b"\x16"
"""The type of a TLS record that begins a handshake (RFC 8446, section 5.1)."""

_HTTP = frozenset(b"GPDHOCT")
"""First letters of the methods GET, PUT, POST, PATCH, DELETE, HEAD, OPTIONS, CONNECT, TRACE."""


async def begins_tls(client: socket.socket) -> bool:
    """Wait for a client's first byte, leave it in the socket, and return whether TLS begins."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return client.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE
        except BlockingIOError:
            pass
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(client, _set, readable)
        try:
            await readable
        finally:
            loop.remove_reader(client)


def _set(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


class FirstByte(asyncio.Protocol):
    """A client before its first byte, which selects the protocol for the rest of the connection.

    A first byte of another protocol goes to AMQP, which answers with the protocol header that it
    supports.
    """

    def __init__(self, connections: Connections, site: Site, visit: Visit) -> None:
        self._connections = connections
        self._site = site
        self._visit = visit
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first byte of a connected client, for the time of a login at most."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.others.add(self._transport)
        loop = asyncio.get_running_loop()
        left_s = self._visit.left_s(self._connections.settings.authorization_s)
        self._timer = loop.call_later(left_s, self._on_silent)

    def _on_silent(self) -> None:
        if self._transport is not None:
            self._connections.admission.ended[ConnectionEnd.UNAUTHENTICATED] += 1
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand the connection over to the protocol of its first byte."""
        transport = self._leave()
        if transport is None:
            return
        protocol: asyncio.Protocol
        if data[0] in _HTTP:
            protocol = self._site.connection(self._visit)
        else:
            protocol = ClientConnection(self._connections, self._visit)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a client that disconnected before the first byte."""
        self._leave()
        self._visit.leave()

    def _leave(self) -> asyncio.Transport | None:
        transport, self._transport = self._transport, None
        if transport is not None:
            self._connections.others.discard(transport)
        if self._timer is not None:
            self._timer.cancel()
        return transport
