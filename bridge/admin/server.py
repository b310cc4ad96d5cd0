"""The HTTP server of health and metrics, and of the administration API on the same port.

A request with an `api-version`, which every client of the administration API sends, goes to that
API: a queue may be called `health`.

`/health` answers as Azure's emulator does. `/health/live` is green while the process works.
`/health/ready` is green while the process can serve; otherwise it has a sentence for each reason.
Faults of single queues of RabbitMQ are warnings there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from bridge.admin.metrics import render
from bridge.admin.service import Service
from bridge.background.supervisor import Supervisor
from bridge.wire.atom.documents import BODY_BYTES_MAX

_log = logging.getLogger("busbridge.admin")


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Whether a log record is about another error than a client's malformed or broken request."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


_log.addFilter(_is_our_fault)

CONNECTIONS_MAX = 100
"""A probe and a scraper need one each. When there are more, the one that has been open for longest
without a whole request is ended: a probe is answered while others hang."""

FIELD_BYTES_MAX = 131_072
"""Bytes of one header: a token has up to 32 KB, and a longer one is refused in Azure's words."""

REQUEST_S = 15.0
"""A connection has one request. What has not been asked, answered and read in so much time is
ended, after twice as much at the latest."""


class _Refused(asyncio.Protocol):
    """The protocol of a connection above the limit, which is closed at once.

    Then every connection has a whole request, which is being answered.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


class AdminServer:
    """The HTTP server of health, metrics and the administration API.

    Args:
        reasons: returns the reasons why the bridge is not ready, a sentence each; empty when ready.
        warnings: returns the queues for which RabbitMQ gives no answer, a sentence each.
        families: returns the current metrics.
        service: the administration API; `None` for a server without it.
        request_s: the time after which a connection is aborted, at the latest after twice as long.
        connections_max: the maximum of connections at a time.
        supervisor: keeps the aborting of slow connections going.
    """

    def __init__(
        self,
        *,
        reasons: Callable[[], Sequence[str]],
        warnings: Callable[[], Sequence[str]],
        families: Callable[[], Awaitable[Iterable[Metric]]],
        service: Service | None = None,
        request_s: float = REQUEST_S,
        connections_max: int = CONNECTIONS_MAX,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._reasons = reasons
        self._warnings = warnings
        self._families = families
        self._service = service
        middlewares = [self._note, self._administer]
        app = web.Application(middlewares=middlewares, client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/health", self._health)
        app.router.add_get("/health/live", self._live)
        app.router.add_get("/health/ready", self._ready)
        app.router.add_get("/metrics", self._metrics)
        app.on_response_prepare.append(_hang_up)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_log,
            shutdown_timeout=1,
            lingering_time=1,
            max_field_size=FIELD_BYTES_MAX,
        )
        self._request_s = request_s
        self._connections_max = connections_max
        self._supervisor = supervisor or Supervisor()
        self._listening: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._requests: dict[asyncio.BaseProtocol, web.Request] = {}

    @web.middleware
    async def _note(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Note which connection has a request under way."""
        self._requests[request.protocol] = request
        try:
            return await handler(request)
        finally:
            del self._requests[request.protocol]

    @web.middleware
    async def _administer(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if self._service is not None and "api-version" in map(str.lower, request.query):
            return await self._service.answer(request)
        return await handler(request)

    async def start(self, listener: socket.socket) -> None:
        """Begin to answer on a listening socket."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._accept, sock=listener)
        self._sweeping = self._supervisor.keep("admin connections", self._sweep).task

    def _accept(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None:
            return _Refused()
        connections = server.connections
        if len(connections) >= self._connections_max and not self._end_oldest(connections):
            return _Refused()
        return server()

    def _end_oldest(self, connections: Iterable[web.RequestHandler]) -> bool:
        """Abort the oldest connection without a whole request; return whether there was one."""
        for connection in connections:
            request = self._requests.get(connection)
            is_whole = request is not None and request.content.is_eof()
            transport = connection.transport
            if not is_whole and transport is not None and not transport.is_closing():
                transport.abort()
                return True
        return False

    async def _sweep(self) -> None:
        """Abort, every `request_s`, the connections that were open at the last round already."""
        seen: set[web.RequestHandler] = set()
        while True:
            await asyncio.sleep(self._request_s)
            there = set(self._runner.server.connections if self._runner.server else ())
            for handler in seen & there:
                if handler.transport is not None:
                    handler.transport.abort()
            seen = there

    async def close(self) -> None:
        """Stop answering."""
        if self._listening is not None:
            self._listening.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeping
        await self._runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        if self._reasons():
            return web.json_response(
                {
                    "status": "unhealthy",
                    "message": "Service not available. Please try after some time.",
                },
                status=503,
            )
        return web.json_response({"status": "healthy", "message": "Service is healthy."})

    async def _live(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "live"})

    async def _ready(self, request: web.Request) -> web.Response:
        reasons = list(self._reasons())
        status = "not ready" if reasons else "ready"
        return web.json_response(
            {"status": status, "reasons": reasons, "warnings": list(self._warnings())},
            status=503 if reasons else 200,
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=await render(await self._families()),
            headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4},
        )


async def _hang_up(request: web.Request, response: web.StreamResponse) -> None:
    """End a connection after its one request.

    `_sweep` cannot tell a connection that is kept open from one whose request never ends. The
    response tells the client: otherwise it would send its next request into a closing connection.
    """
    response.force_close()
    response.headers["Connection"] = "close"
