"""The administration API as an application of its own, for a port where nothing else is asked."""

from __future__ import annotations

from aiohttp import web

from bridge.admin.service import Service
from bridge.wire.atom.documents import BODY_BYTES_MAX


def application(service: Service) -> web.Application:
    """Return an application that has the service answer whatever is asked."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.router.add_route("*", "/{path:.*}", service.answer)
    return app
