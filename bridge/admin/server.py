"""The HTTP server of health and metrics.

`/health` answers as Azure's emulator does; `/health/live` is green while the process works,
`/health/ready` while it can serve, with a sentence a reason otherwise. What is wrong with single
queues of RabbitMQ's is a warning there.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from bridge.admin.metrics import render

_log = logging.getLogger("busbridge.admin")


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Whether an error is more than a malformed request, which is answered and no news."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


_log.addFilter(_is_our_fault)


class AdminServer:
    """Answers operators' and machines' questions about the bridge.

    Args:
        reasons: why the bridge is not ready, a sentence each; empty when it is.
        warnings: which queues RabbitMQ gives no answer for, a sentence each.
        families: the metrics of now.
    """

    def __init__(
        self,
        *,
        reasons: Callable[[], Sequence[str]],
        warnings: Callable[[], Sequence[str]],
        families: Callable[[], Awaitable[Iterable[Metric]]],
    ) -> None:
        self._reasons = reasons
        self._warnings = warnings
        self._families = families
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/health/live", self._live)
        app.router.add_get("/health/ready", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, logger=_log, shutdown_timeout=1)

    async def start(self, listener: socket.socket) -> None:
        """Begin to answer on a listening socket."""
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()

    async def close(self) -> None:
        """Stop answering."""
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
