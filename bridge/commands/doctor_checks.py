"""Checks of the way to a namespace: ports, certificate, clock, and the rights of the login."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from bridge.commands.doctor_connection import connected, messages_proxy, opened
from bridge.commands.errors import sentence_of
from bridge.commands.target import NamespaceLogin
from bridge.remote.errors import RemoteError
from bridge.remote.reachability import certificate_fault, reason_of
from bridge.wire.atom.client import API_VERSION, NAMESPACE

if TYPE_CHECKING:
    from bridge.remote.address import RemoteAddress

Result = Literal["ok", "warning", "failed", "unknown"]

ANSWER_S: Final = 10.0
"""How long a check waits for an answer."""

CERTIFICATE_DAYS: Final = 30
CLOCK_S: Final = 60.0
"""Differences above it are warned of: tokens are refused that end, or begin, at the wrong time."""

_AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
_SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found."""

    check: str
    result: Result
    text: str

    def row(self) -> dict[str, object]:
        """Return the row of a table."""
        return {"check": self.check, "result": self.result, "text": self.text}


async def within(check: str, work: Awaitable[Finding]) -> Finding:
    """Return what a check finds; one that has no answer in time, or fails, has failed."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await work
    except TimeoutError:
        return Finding(check, "failed", f"no answer within {ANSWER_S:g} s")
    except RemoteError as error:
        return Finding(check, "failed", sentence_of(error))
    except OSError as error:
        return Finding(check, "failed", fault_of(error))


def fault_of(error: BaseException) -> str:
    """Return why a connection failed, and what helps."""
    fault = certificate_fault(error)
    if fault is not None:
        return f"the certificate is not trusted: {fault.verify_message}; see --ca-file"
    return reason_of(error)


async def ports(target: NamespaceLogin) -> AsyncIterator[Finding]:
    """Yield findings about the ports of messages and of administration."""
    address = target.address
    name = f"port {address.port}"
    yield await within(name, _messages_port(address, name))
    if address.administration_port != address.port:
        name = f"port {address.administration_port}"
        found = await within(name, _plain_port(address, name))
        if found.result == "failed" and address.other_administration_url is not None:
            text = f"{found.text}; a bridge administers at port {address.port}, too"
            found = Finding(name, "warning", text)
        yield found


async def _messages_port(address: RemoteAddress, name: str) -> Finding:
    began_s = time.monotonic()
    async with connected(address) as (reader, writer):
        took_ms = (time.monotonic() - began_s) * 1000
        by = _by(messages_proxy(address))
        where = f"{urlsplit(address.url).netloc} answers within {took_ms:.0f} ms{by}"
        if address.transport == "websocket":
            return Finding(name, "ok", f"{where}; AMQP over WebSockets")
        writer.write(_SASL_HEADER)
        await writer.drain()
        try:
            answer = await reader.readexactly(len(_SASL_HEADER))
        except asyncio.IncompleteReadError:
            answer = b""
    if answer not in (_SASL_HEADER, _AMQP_HEADER):
        return Finding(name, "failed", f"{where}, but it does not speak AMQP 1.0")
    return Finding(name, "ok", f"{where}, in AMQP 1.0")


def _by(proxy: str | None) -> str:
    from bridge.remote.proxy import shown

    return "" if proxy is None else f" through the proxy {shown(proxy)}"


async def _plain_port(address: RemoteAddress, name: str) -> Finding:
    from bridge.remote.proxy import proxy_of

    began_s = time.monotonic()
    proxy = proxy_of(address.administration_url)
    async with opened(address, address.administration_port, proxy):
        took_ms = (time.monotonic() - began_s) * 1000
    return Finding(name, "ok", f"answers within {took_ms:.0f} ms{_by(proxy)}; administration")


async def certificate(target: NamespaceLogin, now: Callable[[], datetime]) -> Finding:
    """Return how long the namespace's certificate is valid."""
    address, name = target.address, "certificate"
    if not address.tls:
        return Finding(name, "ok", "none: the connection string says plain TCP (the emulator's)")

    async def look() -> Finding:
        async with connected(address) as (_, writer):
            found = writer.get_extra_info("peercert") or {}
        ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(found["notAfter"])), UTC)
        days = (ends - now()).days
        text = f"trusted, valid until {ends:%Y-%m-%d}, {days} days"
        return Finding(name, "ok" if days >= CERTIFICATE_DAYS else "warning", text)

    return await within(name, look())


async def clock(target: NamespaceLogin, now: Callable[[], datetime]) -> Finding:
    """Return by how much this machine's clock differs from the namespace's."""
    import aiohttp

    from bridge.remote.proxy import proxy_of
    from bridge.remote.tls import context_of

    address, name = target.address, "clock"
    urls = [address.administration_url, address.other_administration_url]

    async def ask(url: str) -> Finding:
        context = context_of(target.address)
        connector = aiohttp.TCPConnector(ssl=True if context is None else context)
        try:
            async with aiohttp.ClientSession(connector=connector) as session:
                began = now()
                asked = f"{url}/{NAMESPACE}?api-version={API_VERSION}"
                async with session.get(asked, proxy=proxy_of(url)) as answer:
                    told = answer.headers.get("Date")
                middle = began + (now() - began) / 2
        except aiohttp.ClientError as error:
            return Finding(name, "unknown", f"{url} does not answer: {fault_of(error)}")
        if told is None:
            return Finding(name, "unknown", f"{urlsplit(url).netloc} does not tell its time")
        ahead_s = (middle - parsedate_to_datetime(told)).total_seconds()
        # A second is all that HTTP tells.
        off_s = max(0.0, abs(ahead_s - 0.5) - 0.5)
        text = f"within {max(off_s, 1):.0f} s of the namespace's"
        if off_s > CLOCK_S:
            side = "ahead of" if ahead_s > 0 else "behind"
            return Finding(name, "warning", f"{off_s:.0f} s {side} the namespace's: set it right")
        return Finding(name, "ok", text)

    found = Finding(name, "unknown", "")
    for each in urls:
        if each is not None and found.result == "unknown":
            found = await within(name, ask(each))
    return found


async def rights(target: NamespaceLogin, entities: list[str]) -> AsyncIterator[Finding]:
    """Yield which rights the login has: each is tried by what needs it."""
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.namespace import RemoteNamespace

    async with RemoteAdministration(target.address, target.credential) as administration:

        async def manage() -> None:
            await administration.namespace()

        yield await _right("right Manage", manage)
    if not entities:
        yield Finding(
            "rights Send, Listen", "unknown", "name an entity with --entity to have them tried"
        )
    async with RemoteNamespace(target.address, target.credential) as namespace:
        for entity in entities:

            async def send(entity: str = entity) -> None:
                await (await namespace.sender(entity)).close()

            async def listen(entity: str = entity) -> None:
                await (await namespace.receiver(entity)).close()

            if "/" not in entity:
                yield await _right(f"right Send on {entity}", send)
            yield await _right(f"right Listen on {entity}", listen)


async def _right(check: str, attempt: Callable[[], Awaitable[None]]) -> Finding:
    from bridge.remote.errors import RemoteError, RemoteUnauthorized

    try:
        async with asyncio.timeout(2 * ANSWER_S):
            await attempt()
    except TimeoutError:
        return Finding(check, "failed", f"no answer within {2 * ANSWER_S:g} s")
    except RemoteUnauthorized as error:
        return Finding(check, "warning", f"no: {error}")
    except RemoteError as error:
        return Finding(check, "failed", str(error))
    return Finding(check, "ok", "yes")


async def health(url: str) -> AsyncIterator[Finding]:
    """Yield what a bridge says of itself at its `--admin-port`."""
    import aiohttp

    check = "bridge"
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            aiohttp.ClientSession() as session,
            session.get(f"{url.rstrip('/')}/health/ready") as answer,
        ):
            told = await answer.json(content_type=None)
        reasons, warnings = told["reasons"], told["warnings"]
    except TimeoutError:
        yield Finding(check, "failed", f"{url} does not answer: no answer in time")
        return
    except (aiohttp.ClientError, OSError) as error:
        yield Finding(check, "failed", f"{url} does not answer: {reason_of(error)}")
        return
    except (ValueError, KeyError, TypeError):
        yield Finding(check, "unknown", f"{url} does not say how it is: is it a bridge's?")
        return
    for reason in reasons:
        yield Finding(check, "failed", str(reason))
    for warning in warnings:
        yield Finding(check, "warning", str(warning))
    if not reasons:
        yield Finding(check, "ok", f"{url} is ready")
