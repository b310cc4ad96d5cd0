"""A client's HTTP connection: its bytes reach aiohttp, or a WebSocket, in the client's turn.

aiohttp processes all its input at once. So each call hands aiohttp few bytes, within the same time
budgets as AMQP's input, and a client without an accepted token may send few bytes in all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web

from bridge.gateway.client.admission import ConnectionEnd, Visit
from bridge.gateway.client.connections import Connections
from bridge.gateway.connection.connection import ClientConnection
from bridge.gateway.connection.reader import ConnectionReader
from bridge.gateway.http.websocket import WebSocket
from bridge.wire.websocket import WebSocketError

_log = logging.getLogger("busbridge.gateway")

UNAUTHENTICATED_BYTES_MAX = 131_072
"""Bytes that a client may send before a token is accepted or the connection is a WebSocket: the
head of a request and a description of an entity."""

SLICE_BYTES = 4_096
"""Bytes that aiohttp gets before the clock is read again."""

ENDED_S = 0.1
"""How long a client that sends no more stays connected behind its last answer."""


class _Below:
    """The transport as the protocols above see it: pausing reading only pauses their own input."""

    def __init__(self, transport: asyncio.Transport, hold: Callable[[bool], None]) -> None:
        self._transport = transport
        self._hold = hold

    def pause_reading(self) -> None:
        self._hold(True)

    def resume_reading(self) -> None:
        self._hold(False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpConnection(ConnectionReader):
    """One client's HTTP connection.

    Args:
        handler: aiohttp's protocol of a connection.

    Attributes:
        has_ended: the client sends no more; it may still wait for answers, or have left.
    """

    def __init__(self, connections: Connections, visit: Visit, handler: asyncio.Protocol) -> None:
        super().__init__(connections, visit)
        self._handler = handler
        self._above = handler
        self._below: asyncio.Transport | None = None
        self._bytes = 0
        self._is_advancing = False
        self._is_held_above = False
        self._is_between = False
        self._requests: list[web.Request] = []
        self._answered_s: float | None = self._loop.time()
        self._leaving: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self.has_ended = False

    def __repr__(self) -> str:
        return f"<HttpConnection above={self._above!r} input={len(self._input) - self._input_at}>"

    # -- what the requests need

    def known(self) -> None:
        """Note that a request was authorized: the connection is authenticated."""
        self._visit.known()
        self._timers.cancel("authorization")

    @property
    def leaving(self) -> asyncio.Future[None]:
        """Done when no request waits longer: the client has ended or left, or the bridge stops."""
        return self._leaving

    @property
    def is_heard(self) -> bool:
        """Whether the client's end is noticed: not while its input waits behind a request."""
        return not self._is_held_above

    def begin(self, request: web.Request) -> None:
        """Note that a request is under way."""
        self._requests.append(request)
        if self.has_ended and not request.content.is_eof() and self._transport is not None:
            self._transport.close()

    def finish(self, request: web.Request) -> None:
        """Note that a request is answered, or about to be."""
        self._requests.remove(request)
        self._answered_s = self._loop.time()
        if self.has_ended and self._transport is not None:
            self._timers.set("ended", ENDED_S, self._close_answered)

    def _close_answered(self) -> None:
        if not self._requests and self._transport is not None:
            self._transport.close()

    def leave(self) -> None:
        """End the waits of requests."""
        if not self._leaving.done():
            self._leaving.set_result(None)

    async def speak_amqp(self) -> None:
        """Hand all further input to an AMQP connection in a WebSocket; return when that has ended.

        The AMQP connection has timers of its own; the client's authentication is unchanged.
        """
        if self._below is None or self.has_ended:
            return
        self._timers.cancel_all()
        connection = ClientConnection(self._connections, self._visit)
        self._above = WebSocket(self._below, connection, self._on_fault)
        self._hold(False)
        await self._gone

    def _on_fault(self, error: WebSocketError) -> None:
        self._end(
            ConnectionEnd.LOGIN if self._visit.is_unauthenticated else ConnectionEnd.FAULT,
            str(error),
        )

    def _end(self, reason: ConnectionEnd, text: str) -> None:
        self._connections.admission.ended[reason] += 1
        peer = self._transport.get_extra_info("peername") if self._transport is not None else "?"
        _log.info("http.ended peer=%s reason=%s text=%r", peer, reason.value, text)

    def _abort(self, reason: ConnectionEnd, text: str) -> None:
        if self._transport is not None:
            self._end(reason, text)
            self._transport.abort()

    # -- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve a connected client."""
        self._transport = cast(asyncio.Transport, transport)
        self._connections.others.add(self._transport)
        self._below = cast(asyncio.Transport, _Below(self._transport, self._hold))
        left_s = self._visit.left_s(self._connections.settings.authorization_s)
        self._timers.set("authorization", left_s, self._on_unauthorized)
        self._handler.connection_made(self._below)

    def _on_unauthorized(self) -> None:
        self._abort(ConnectionEnd.UNAUTHENTICATED, "no request was authorised in time")

    def connection_lost(self, exc: Exception | None) -> None:
        """Release all resources of a client that is gone."""
        self._timers.cancel_all()
        self._forget_input()
        if self._above is not self._handler:
            self._above.connection_lost(exc)
        self._handler.connection_lost(exc)
        if self._transport is not None:
            self._connections.others.discard(self._transport)
        self._transport = self._below = None
        self._visit.leave()
        self.leave()
        if not self._gone.done():
            self._gone.set_result(None)

    @property
    def _is_unauthenticated_http(self) -> bool:
        return self._visit.is_unauthenticated and self._above is self._handler

    def _go_on(self) -> None:
        if self._is_advancing:
            self._pace()
        else:
            super()._go_on()

    def advance(self, now_s: float, until_s: float) -> bool:
        """Hand input up until a time of the loop's clock; see `ConnectionReader.advance`."""
        self._is_advancing = True
        while self._input_at < len(self._input) and not self._is_held:
            at = self._input_at
            self._input_at = at + SLICE_BYTES
            piece = self._input[at : self._input_at]
            self._answered_s = None
            self._bytes += len(piece)
            if self._is_unauthenticated_http and self._bytes > UNAUTHENTICATED_BYTES_MAX:
                self._forget_input()
                self._abort(
                    ConnectionEnd.LOGIN, "too much was sent before a request was authorised"
                )
                break
            self._above.data_received(piece)
            if self._is_unauthenticated_http:
                self._let_the_request_run()
            if self._loop.time() >= until_s:
                break
        self._is_advancing = False
        return self._end_advance()

    def _let_the_request_run(self) -> None:
        """Hand up no more in this turn of the loop: a request's token is checked before its body.

        Otherwise a large body that comes together with its head would be too much from a client
        that has a valid token.
        """
        self._is_between = True
        self._loop.call_soon(self._end_between)

    def _end_between(self) -> None:
        self._is_between = False
        self._go_on()

    @property
    def _is_held(self) -> bool:
        return self._is_held_above or self._is_between

    def _hold(self, is_held: bool) -> None:
        """Stop handing input up, or go on."""
        self._is_held_above = is_held
        self._go_on()

    def eof_received(self) -> bool | None:
        """Answer the requests that have come whole, though the client sends no more.

        Such a client may have left altogether: no request waits for a message any longer. TLS has
        no end of one direction alone.
        """
        if self._above is not self._handler:
            return self._above.eof_received()
        self.has_ended = True
        self.leave()
        transport, answered_s = self._transport, self._answered_s
        if transport is None or transport.get_extra_info("ssl_object") is not None:
            return None
        is_idle = answered_s is not None and self._loop.time() - answered_s > ENDED_S
        if is_idle and not self._requests:
            return None
        if not all(request.content.is_eof() for request in self._requests):
            return None
        self._timers.set("ended", ENDED_S, self._close_answered)
        return True

    def pause_writing(self) -> None:
        """Pass on that the client does not read."""
        if self._above is self._handler:
            self._timers.set("unread", self._connections.settings.unread_s, self._on_unread)
        self._above.pause_writing()

    def _on_unread(self) -> None:
        self._abort(ConnectionEnd.UNREAD, "an answer was not read")

    def resume_writing(self) -> None:
        """Pass on that the client reads again."""
        self._timers.cancel("unread")
        self._above.resume_writing()
