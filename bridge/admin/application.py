"""The administration API as an application of its own, for a port that serves nothing else."""

from __future__ import annotations

from aiohttp import web

from bridge.admin.service import Service
from bridge.wire.atom.documents import BODY_BYTES_MAX


def application(service: Service) -> web.Application:
    """Return an application that passes every request to the service."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.router.add_route("*", "/{path:.*}", service.answer)
    return app
