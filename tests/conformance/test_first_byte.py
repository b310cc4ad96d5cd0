"""One port: AMQP, HTTP and TLS are told apart by the first byte, and each is bounded alike."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from bridge.gateway.client.admission import ConnectionEnd, NotAdmitted
from bridge.gateway.http import http
from bridge.gateway.http.site import authorize
from bridge.gateway.server import Gateway
from bridge.wire.amqp10.frame import ProtocolHeader
from bridge.wire.amqp10.performatives import Attach, Disposition
from tests.conformance.client import Client, sas
from tests.conformance.probe import check, undisturbed
from tests.conformance.served import client, client_tls, gateway, message, server_tls
from tests.conformance.test_storms import TURN_S_MAX, drain, probing
from tests.conformance.web import answer_to
from tests.fixtures.waiting import until

SASL = ProtocolHeader.SASL.value
GET = b"GET /hello HTTP/1.1\r\nHost: x\r\nAuthorization: yes\r\n\r\n"
PUT = b"PUT /hello HTTP/1.1\r\nHost: x\r\n"
UNAUTHENTICATED_GET = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"


def hello_app() -> web.Application:
    """An application that greets, and takes any token and any body; without a token it is 401."""

    async def hello(request: web.Request) -> web.Response:
        status = 401
        if "Authorization" in request.headers:
            authorize(request)
            status = 200
        return web.Response(text=f"hello {len(await request.read())}", status=status)

    app = web.Application()
    app.router.add_route("*", "/hello", hello)
    return app


@asynccontextmanager
async def everything(
    certified: tuple[Path, Path], **settings: object
) -> AsyncIterator[tuple[Gateway, int, ssl.SSLContext]]:
    """A gateway that takes TLS too, its port, and what a client trusts it by."""
    async with gateway(tls=server_tls(certified), app=hello_app(), **settings) as (served, port):
        yield served, port, client_tls(certified)


async def get(port: int, tls: ssl.SSLContext | None, said: bytes = GET) -> bytes:
    """Ask, and return the answer's first bytes."""
    name = "localhost" if tls is not None else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    writer.write(said)
    async with asyncio.timeout(120):
        answer = await reader.readuntil(b"hello 0")
    writer.close()
    return answer


async def test_one_port_for_all(certified: tuple[Path, Path]) -> None:
    """AMQP, AMQPS, HTTP and HTTPS are served on one port, at once."""
    async with everything(certified) as (served, port, trusting):
        for tls in (None, trusting):
            peer = await (await Client.connect(port, tls=tls)).open()
            assert await peer.put_token(sas()) == 202
            assert (await get(port, tls)).startswith(b"HTTP/1.1 200 OK")
            await peer.close()
        await until(lambda: not served.admission.connections)
        assert sum(served.admission.ended.values()) == 0


async def test_first_bytes_that_come_one_by_one(certified: tuple[Path, Path]) -> None:
    """The first one decides; nothing of it is lost."""
    async with everything(certified) as (_, port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for at in range(8):
            writer.write(SASL[at : at + 1])
            await asyncio.sleep(0.01)
        assert await reader.readexactly(8) == SASL
        writer.close()

        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for at in range(len(GET)):
            writer.write(GET[at : at + 1])
            await asyncio.sleep(0)
        await reader.readuntil(b"hello 0")
        writer.close()


async def test_without_a_certificate_tls_is_no_protocol() -> None:
    """It is answered with AMQP's header, as all that is unknown."""
    async with gateway() as (_, port):
        assert await answer_to(port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") == SASL


async def test_a_port_for_tls_alone(certified: tuple[Path, Path]) -> None:
    """A client that begins without TLS is refused: no token is sent in clear by mistake."""
    async with everything(certified, is_tls_only=True) as (served, port, trusting):
        assert (await get(port, trusting)).startswith(b"HTTP/1.1 200 OK")
        assert await answer_to(port, SASL) == b""
        assert await answer_to(port, GET) == b""
        assert served.admission.ended[ConnectionEnd.TLS] == 2


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize(
    "said",
    [b"", b"G", GET[:20], PUT + b"Content-Length: 100\r\n\r\nabc"],
    ids=["nothing", "a letter", "half a head", "half a body"],
)
async def test_a_request_that_does_not_end(
    said: bytes, is_tls: bool, certified: tuple[Path, Path]
) -> None:
    """Without an authorised request a connection has the time of a login, however far it came."""
    async with everything(certified, authorization_s=0.3) as (served, port, trusting):
        tls, name = (trusting, "localhost") if is_tls else (None, None)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=tls, server_hostname=name
        )
        writer.write(said)
        async with asyncio.timeout(120):
            await drain(reader)
        writer.transport.abort()

        await until(lambda: not served.admission.connections)
        assert served.admission.ended[ConnectionEnd.UNAUTHENTICATED] == 1
        assert not served.connections.others


@pytest.mark.parametrize(
    "said",
    [
        b"GET /" + b"x" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1_000,
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        PUT + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["a long path", "many fields", "no method", "a bad field", "lengths"],
)
async def test_a_head_that_is_no_head(said: bytes) -> None:
    """It is answered with 400, and its connection ends."""
    async with gateway(app=hello_app()) as (served, port):
        answer = await answer_to(port, said)

        assert answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
        await until(lambda: not served.admission.connections)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_without_end(is_chunked: bool) -> None:
    """A stranger's connection ends when it has sent more than any request holds."""
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: 1000000000000"
    head = PUT + length + b"\r\n\r\n"
    body = b"1\r\nx\r\n" * 100_000 if is_chunked else bytes(1_000_000)
    async with gateway(app=hello_app()) as (served, port):
        assert await answer_to(port, head + body) == b""
        assert served.admission.ended[ConnectionEnd.LOGIN] == 1
        await until(lambda: not served.admission.connections)


async def test_strangers_over_http_count_by_address(certified: tuple[Path, Path]) -> None:
    """As over TCP; one of their requests is authorised, and there is room for another."""
    async with everything(certified, unauthenticated_max=2) as (served, port, _):
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(lambda: served.admission.unauthenticated == 2)
        assert await answer_to(port, GET) == b""
        assert served.admission.refused[NotAdmitted.ADDRESS] == 1
        pairs[0][1].write(GET)
        await pairs[0][0].readuntil(b"hello 0")
        await until(lambda: served.admission.unauthenticated == 1)
        pairs[0][1].write(GET)
        await pairs[0][0].readuntil(b"hello 0")
        for _, writer in pairs:
            writer.close()


async def test_a_stranger_has_one_request_a_connection() -> None:
    """The requests behind the first one are not read."""
    async with gateway(app=hello_app()) as (_, port):
        assert (await answer_to(port, UNAUTHENTICATED_GET * 1_000)).count(b"hello 0") == 1


def request_of(size: int) -> bytes:
    """Return a request with a body in the smallest chunks."""
    head = PUT + b"Authorization: yes\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"1\r\nx\r\n" * size + b"0\r\n\r\n"


FLOODS = {
    "requests": GET * 5_000,
    "requests without authority": UNAUTHENTICATED_GET * 5_000,
    "chunks": request_of(20_000),
    "fields": b"GET /hello HTTP/1.1\r\n" + b"A: b\r\n" * 100_000,
    "connections": GET,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
@undisturbed
async def test_floods_over_http(flood: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """While clients flood the bridge with requests, no turn of the loop takes long."""
    monkeypatch.setattr(http, "UNAUTHENTICATED_BYTES_MAX", 10_000_000)
    count = 100 if flood == GET else 20
    settings = {"authorization_s": 60, "unauthenticated_max": 1_000}
    async with gateway(app=hello_app(), **settings) as (_, port), client(port) as honest:
        honest.attach(7, "q", role=False)
        await honest.next(Attach, handle=7)
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
        reading = [asyncio.create_task(drain(reader)) for reader, _ in pairs]
        with probing() as probe:
            for _, writer in pairs:
                writer.write(flood)
            for _ in range(20):
                honest.transfer(7, message(b"x"))
                await honest.next(Disposition)
        for _, writer in pairs:
            writer.transport.abort()
        await asyncio.gather(*reading)

    check(probe.longest_s, TURN_S_MAX)


async def test_an_answer_that_is_not_read() -> None:
    """A client that leaves its answers unread is disconnected, as over AMQP."""

    async def much(request: web.Request) -> web.Response:
        return web.Response(body=bytes(10_000_000))

    app = web.Application()
    app.router.add_get("/hello", much)
    async with gateway(app=app, unread_s=0.3) as (served, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_000)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(GET)
        await until(lambda: served.admission.ended[ConnectionEnd.UNREAD] == 1)
        await until(lambda: not served.admission.connections)
        writer.transport.abort()


async def test_a_stop_answers_the_request_that_is_under_way() -> None:
    """It is answered before the gateway is gone; idle and silent connections end with it."""
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        is_asked.set()
        await may_answer.wait()
        return web.Response(text="hello 0")

    app = web.Application()
    app.router.add_get("/hello", slow)
    async with gateway(app=app) as (served, port):
        silent = await asyncio.open_connection("127.0.0.1", port)
        asking = asyncio.create_task(get(port, None))
        await is_asked.wait()
        stopping = asyncio.create_task(served.stop())
        await until(lambda: served.connections.is_stopping)
        may_answer.set()
        await stopping
        assert (await asking).startswith(b"HTTP/1.1 200 OK")
        await drain(silent[0])
        silent[1].close()
        assert not served.connections.others
