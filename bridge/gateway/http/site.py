"""The HTTP side of a gateway: the WebSocket of AMQP, and the given application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bridge.gateway.client.admission import Visit
from bridge.gateway.client.connections import Connections
from bridge.gateway.http.http import HttpConnection
from bridge.gateway.http.websocket import PATHS, SUBPROTOCOLS

_log = logging.getLogger("busbridge.http")


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Whether an error is more than a malformed or broken request, which is not logged."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


_log.addFilter(_is_our_fault)

_AUTHORIZED = web.RequestKey("is_authorized", bool)

_SWITCHING = 101

KEEP_ALIVE_S = 75.0
"""How long a connection may be idle between two requests, of which one was authorized."""

REQUEST_S = 90.0
"""How long a request may take, its body and its answer included; a receive waits for 60 s."""

FIELD_BYTES_MAX = 131_072
"""Bytes of one field. A message's properties have fewer, by the rule of all messages; a token of
more than 32 KB is refused in Azure's words up to here, where all bytes of a stranger end."""


def authorize(request: web.Request) -> None:
    """Note that a request has an accepted token, so the client is authenticated."""
    request[_AUTHORIZED] = True
    connection = _connection_of(request)
    if connection is not None:
        connection.known()


def leaving_of(request: web.Request) -> asyncio.Future[None]:
    """Return what is done when a request need not wait longer; see `HttpConnection.leaving`."""
    connection = _connection_of(request)
    if connection is not None:
        return connection.leaving
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    gone.set_result(None)
    return gone


def is_heard(request: web.Request) -> bool:
    """Return whether the end of a request's client is noticed; see `HttpConnection.is_heard`."""
    connection = _connection_of(request)
    return connection is not None and connection.is_heard


def has_ended(request: web.Request) -> bool:
    """Return whether a request's client sends no more; see `HttpConnection.has_ended`."""
    connection = _connection_of(request)
    return connection is not None and connection.has_ended


class Site:
    """The HTTP side of a gateway.

    Args:
        app: answers requests other than the WebSocket's; `None` for no such requests. The
            application calls `authorize` for a request with an accepted token: other requests are
            answered once, and end their connection, which counts as unauthenticated until then.
    """

    def __init__(self, connections: Connections, app: web.Application | None = None) -> None:
        self._connections = connections
        self._app = app if app is not None else web.Application()
        for path in PATHS:
            self._app.router.add_get(path, self._websocket)
        self._app.middlewares.insert(0, self._admit)
        self._app.on_response_prepare.append(_hang_up_on_unauthenticated)
        self._runner = web.AppRunner(
            self._app,
            access_log=None,
            logger=_log,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=1,
            shutdown_timeout=0.1,
            max_field_size=FIELD_BYTES_MAX,
            auto_decompress=False,  # a message's body is stored as it was sent
        )
        self._requests = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def start(self) -> None:
        """Prepare the site for connections."""
        if self._runner.server is None:
            await self._runner.setup()

    def connection(self, visit: Visit) -> HttpConnection:
        """Return the protocol of a connection."""
        server = self._runner.server
        assert server is not None, "a site is started before it listens"
        return HttpConnection(self._connections, visit, server())

    def end_waits(self) -> None:
        """Have no request wait for a message any longer."""
        for transport in self._connections.others:
            connection = transport.get_protocol()
            if isinstance(connection, HttpConnection):
                connection.leave()

    def answered(self) -> Awaitable[object]:
        """Wait until no request is under way."""
        return self._is_idle.wait()

    async def close(self) -> None:
        """Release the site's resources; all connections have ended."""
        await self._runner.cleanup()

    @web.middleware
    async def _admit(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Note a request of a connection while it is under way."""
        connection = _connection_of(request)
        if connection is None:
            raise web.HTTPServiceUnavailable(text="The connection is closed.")
        connection.begin(request)
        try:
            return await self._carry_out(request, handler)
        finally:
            connection.finish(request)

    async def _carry_out(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Let other tasks have their turn before each request: a client may send many at once."""
        await asyncio.sleep(0)
        if self._connections.is_stopping:
            raise web.HTTPServiceUnavailable(text="The bridge is stopping; try again.")
        if request.path in PATHS:
            return await handler(request)
        self._count(1)
        try:
            async with asyncio.timeout(REQUEST_S):
                return await handler(request)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._requests += change
        if self._requests:
            self._is_idle.clear()
        else:
            self._is_idle.set()

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        """Serve AMQP over WebSockets."""
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if not any(each.strip() in SUBPROTOCOLS for each in offered.split(",")):
            raise web.HTTPBadRequest(text=f"Offer the subprotocol {' or '.join(SUBPROTOCOLS)}.")
        connection = _connection_of(request)
        if connection is None:
            raise web.HTTPServiceUnavailable(text="The connection is closed.")
        response = web.WebSocketResponse(protocols=SUBPROTOCOLS, compress=False)
        await response.prepare(request)
        await connection.speak_amqp()
        return response


async def _hang_up_on_unauthenticated(request: web.Request, response: web.StreamResponse) -> None:
    """Tell the client of the close, or it would send the next request into a closed connection."""
    if request.get(_AUTHORIZED, False) or response.status == _SWITCHING:
        return
    response.force_close()
    response.headers["Connection"] = "close"


def _connection_of(request: web.Request) -> HttpConnection | None:
    """Return the connection of a request; `None` when the connection has ended."""
    transport = request.transport
    connection = transport.get_protocol() if transport is not None else None
    return connection if isinstance(connection, HttpConnection) else None
