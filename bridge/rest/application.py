"""What is answered over HTTP on the gateway's port: the API of messages, and administration."""

from __future__ import annotations

from aiohttp import web

from bridge.admin.service import Service
from bridge.model.errors import ArgumentError
from bridge.rest.messages import Messages
from bridge.rest.target import parse_target
from bridge.wire.atom.documents import BODY_BYTES_MAX


def application(service: Service, messages: Messages) -> web.Application:
    """Return an application that passes each request to the API that its path names."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            target = parse_target(request.method, request.raw_path)
        except ArgumentError:
            target = None  # administration refuses such a path
        if target is None:
            return await service.answer(request)
        return await messages.answer(request, target)

    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.router.add_route("*", "/{path:.*}", answer)
    return app
