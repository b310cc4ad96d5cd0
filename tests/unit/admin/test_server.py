"""The admin port, asked by clients that do not speak HTTP well."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from prometheus_client import Metric

from bridge.admin.server import AdminServer
from tests.fixtures.waiting import until

MALFORMED = {
    "no version": b"GET /health\r\n\r\n",
    "no method": b"\r\n \x00 / HTTP/1.1\r\n\r\n",
    "AMQP": b"AMQP\x03\x01\x00\x00",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "a header without a colon": b"GET /health HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n",
    "a control character": b"GET /health HTTP/1.1\r\nHost: x\r\nA: \x00\x01\r\n\r\n",
    "a long line": b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5_000 + b"\r\n",
    "two lengths": b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a broken chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a broken encoding": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"
    ),
    "a good request, then none": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n",
    "an expectation": b"GET /health HTTP/1.1\r\nHost: x\r\nExpect: nothing\r\n\r\n",
    "a bad host": b"GET /health HTTP/1.1\r\nHost: [::1\r\n\r\n",
    "a proxy's request": b"GET http://[x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "PROXY": b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n",
}


async def _none() -> Sequence[Metric]:
    return ()


@asynccontextmanager
async def admin(
    families: Callable[[], Awaitable[Sequence[Metric]]] = _none, **bounds: float
) -> AsyncIterator[int]:
    """Run an admin server; yields its port."""
    server = AdminServer(
        reasons=tuple,
        warnings=tuple,
        families=families,
        **bounds,  # type: ignore[arg-type]
    )
    listener = socket.create_server(("127.0.0.1", 0))
    await server.start(listener)
    try:
        yield listener.getsockname()[1]
    finally:
        await server.close()


async def ask(port: int, request: bytes, *, patience_s: float = 10) -> bytes:
    """Send bytes, and return what is answered until the server hangs up or patience ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(request)
        async with asyncio.timeout(patience_s):
            while part := await reader.read(65_536):
                answer += part
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.close()
    return answer


@pytest.mark.parametrize("request_bytes", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_requests(request_bytes: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A malformed request is answered or hung up on; it leaves no traceback, and nobody waits."""
    caplog.set_level(logging.INFO)
    async with admin() as port:
        await ask(port, request_bytes, patience_s=0.2)
        answer = await ask(port, b"GET /health HTTP/1.0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.0 200")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


HALVES = {
    "nothing": b"",
    "half a line": b"GET /heal",
    "half a header": b"GET /health HTTP/1.1\r\nHost: x\r\nA: b",
    "half a body": b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx",
    "a request that is answered": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES.keys())
async def test_requests_that_do_not_end(half: bytes) -> None:
    """A connection is ended after some time, whatever is missing; others are answered meanwhile."""
    async with admin(request_s=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(half)
        answer = await ask(port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(120):
            while await _read(reader):
                pass
        writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65_536)
    except ConnectionError:
        return b""


async def test_a_request_that_trickles() -> None:
    """A client that sends a header now and then is ended too."""
    async with admin(request_s=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\n")
        async with asyncio.timeout(120):
            while not reader.at_eof() and reader.exception() is None:
                writer.write(b"A: b\r\n")
                await asyncio.sleep(0.05)
        writer.close()


HEALTH = b"GET /health HTTP/1.0\r\n\r\n"


@pytest.mark.parametrize("half", list(HALVES.values())[:4], ids=list(HALVES)[:4])
async def test_health_while_many_requests_hang(half: bytes) -> None:
    """Of 500 half-open requests the oldest give way, each time somebody asks."""
    async with admin() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(500)]
        for _, writer in held:
            writer.write(half)
        for _ in range(10):
            assert (await ask(port, HEALTH)).startswith(b"HTTP/1.0 200")
        for _, writer in held:
            writer.close()


async def test_requests_that_are_being_answered_do_not_give_way() -> None:
    """With as many as there may be, others are hung up on; and find room when one is answered."""
    gate, begun = asyncio.Event(), 0

    async def families() -> Sequence[Metric]:
        nonlocal begun
        begun += 1
        await gate.wait()
        return ()

    async with admin(families, connections_max=5) as port:
        metrics = b"GET /metrics HTTP/1.0\r\n\r\n"
        asked = [asyncio.create_task(ask(port, metrics)) for _ in range(5)]
        await until(lambda: begun == 5)
        assert await ask(port, HEALTH) == b""
        gate.set()
        for each in asked:
            assert (await each).startswith(b"HTTP/1.0 200")
        await until(lambda: ask(port, HEALTH))
