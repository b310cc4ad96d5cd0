"""Tells what a client speaks by the first byte it sends: TLS, HTTP or AMQP.

TLS has to be known before a transport is made: the byte is looked at in the socket and left there.
HTTP and AMQP are told apart by what a transport reads, below TLS or without it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

from bridge.gateway.admission import Ended, Visit
from bridge.gateway.connection import Connection

if TYPE_CHECKING:
    from bridge.gateway.server import Gateway

_TLS_HANDSHAKE = b"\x16"
"""The type of a TLS record that begins a handshake (RFC 8446, section 5.1)."""

_HTTP = frozenset(b"GPDHOCT")
"""What methods begin with: GET, PUT, POST, PATCH, DELETE, HEAD, OPTIONS, CONNECT, TRACE."""


async def begins_tls(client: socket.socket) -> bool:
    """Wait for a client's first byte, and leave it in the socket."""
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
    """A client that has said nothing yet; hands over to the protocol of its first byte.

    What is neither is AMQP's: it is answered with the header that would have been understood.
    """

    def __init__(self, gateway: Gateway, visit: Visit) -> None:
        self._gateway = gateway
        self._visit = visit
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected, and has the time of a login to say something."""
        self._transport = cast(asyncio.Transport, transport)
        self._gateway.others.add(self._transport)
        loop = asyncio.get_running_loop()
        left_s = self._visit.left_s(self._gateway.settings.authorization_s)
        self._timer = loop.call_later(left_s, self._on_silent)

    def _on_silent(self) -> None:
        if self._transport is not None:
            self._gateway.admission.ended[Ended.UNAUTHENTICATED] += 1
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand over."""
        transport = self._leave()
        if transport is None:
            return
        protocol: asyncio.Protocol
        if data[0] in _HTTP:
            protocol = self._gateway.site.connection(self._visit)
        else:
            protocol = Connection(self._gateway, self._visit)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client went without a word."""
        self._leave()
        self._visit.leave()

    def _leave(self) -> asyncio.Transport | None:
        transport, self._transport = self._transport, None
        if transport is not None:
            self._gateway.others.discard(transport)
        if self._timer is not None:
            self._timer.cancel()
        return transport
