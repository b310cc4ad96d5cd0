"""The list of entities that is shown again and again."""

from __future__ import annotations

import asyncio
import io
import os
import signal

import pytest
from aiohttp import web

from bridge.cli.main import parser_of
from bridge.commands import ls
from bridge.commands.output import Output

QUEUES = """<feed xmlns="http://www.w3.org/2005/Atom"><entry><title type="text">orders</title>
<content type="application/xml"><QueueDescription
  xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>
</feed>"""
NOTHING = '<feed xmlns="http://www.w3.org/2005/Atom"/>'


async def test_an_interrupted_watch_does_not_read_the_namespace_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends in its pause: the read of a large namespace takes a while."""
    asked_for = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked_for.append(request.path)
        is_queues = request.path.endswith("/Queues")
        return web.Response(text=QUEUES if is_queues else NOTHING, content_type="application/xml")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("BUSBRIDGE_PORT", str(runner.addresses[0][1]))
    words = ("ls", "-n", "local", "--watch", "3600")
    stdout = _Interrupting()
    output = Output(stdout=stdout)
    work = asyncio.ensure_future(ls.run(parser_of(("ls",)).parse_args(words), output))
    try:
        with output.interruption.ending(work):
            async with asyncio.timeout(120):
                assert await work == 0
    finally:
        await runner.cleanup()
    assert '"path": "orders"' in stdout.getvalue()
    assert asked_for == ["/$Resources/Queues", "/$Resources/Topics"]


class _Interrupting(io.StringIO):
    """Standard output whose reader presses Ctrl-C, once, at the first row."""

    is_interrupted = False

    def flush(self) -> None:
        if not self.is_interrupted:
            self.is_interrupted = True
            os.kill(os.getpid(), signal.SIGINT)
