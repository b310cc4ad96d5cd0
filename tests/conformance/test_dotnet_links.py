"""What .NET's Azure.Messaging.ServiceBus sends, in frames made after its source, and its answers.

The client itself cannot be run here: nothing of it is loaded, and what it does with an answer is
known from reading alone.
"""

from __future__ import annotations

from aiohttp import web

from tests.conformance.client import Client, sas
from tests.conformance.served import gateway
from tests.conformance.web import UPGRADE, WebSocket

# -- connecting


async def test_the_path_of_its_websocket_ends_with_a_slash() -> None:
    """It offers the registered subprotocol alone; the administration API takes all other paths."""
    upgrade = UPGRADE.replace(b"/websocket ", b"/websocket/ ")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _nothing_here)
    async with gateway(app=app) as (_, port):
        below = await WebSocket.connect(port, subprotocol=b"amqp", upgrade=upgrade)
        peer = await Client(below, below).open()  # type: ignore[arg-type]
        assert await peer.put_token(sas()) == 202
        await peer.close()


async def _nothing_here(request: web.Request) -> web.Response:
    return web.Response(status=404)
