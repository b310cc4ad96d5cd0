"""Connections of the doctor's checks: to a namespace's ports, through a proxy if there is one."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from bridge.remote.address import RemoteAddress

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def messages_proxy(address: RemoteAddress) -> str | None:
    """Return the proxy for messages; raises RemoteRefused. Only WebSockets have one."""
    from bridge.remote.proxy import proxy_of

    return proxy_of(address.url) if address.transport == "websocket" else None


@asynccontextmanager
async def connected(address: RemoteAddress) -> AsyncIterator[Streams]:
    """Yield a connection to the port of messages, encrypted where it is.

    Raises:
        OSError: it, or the proxy, is not reached, or the proxy refuses.
    """
    from bridge.remote.tls import context_of

    proxy = messages_proxy(address)
    async with opened(address, address.port, proxy, context_of(address)) as streams:
        yield streams


@asynccontextmanager
async def opened(
    address: RemoteAddress, port: int, proxy: str | None, context: ssl.SSLContext | None = None
) -> AsyncIterator[Streams]:
    """Yield a connection to a port of a namespace; raises OSError, see `connected`.

    Args:
        context: for TLS with the namespace; that with an `https` proxy is around it.
    """
    host = address.host
    place = (host, port) if proxy is None else _place_of(proxy)
    first = context if proxy is None else _proxy_context(address, proxy)
    try:
        reader, writer = await asyncio.open_connection(
            *place, ssl=first, server_hostname=None if first is None else place[0]
        )
    except OSError as error:
        if proxy is None or isinstance(error, ssl.SSLError):
            raise
        raise _no_proxy(proxy, error) from error
    try:
        if proxy is not None:
            await _connect(proxy, host, port, (reader, writer))
            if context is not None:
                await writer.start_tls(context, server_hostname=host)
        yield reader, writer
    finally:
        writer.close()


def _no_proxy(proxy: str, error: OSError) -> ConnectionError:
    """Return the error for a proxy that is not reached: a host behind it is not to blame."""
    from bridge.remote.proxy import shown
    from bridge.remote.reachability import reason_of

    return ConnectionError(f"the proxy {shown(proxy)} does not answer: {reason_of(error)}")


def _place_of(proxy: str) -> tuple[str, int]:
    parts = urlsplit(proxy)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _proxy_context(address: RemoteAddress, proxy: str) -> ssl.SSLContext | None:
    """Return the context for an `https` proxy: its certificate is verified as the namespace's."""
    from bridge.remote.tls import context_of

    if urlsplit(proxy).scheme != "https":
        return None
    return context_of(address) or ssl.create_default_context()


async def _connect(proxy: str, host: str, port: int, streams: Streams) -> None:
    """Ask a proxy for the way to a host and its port."""
    from bridge.remote.proxy import shown

    reader, writer = streams
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    parts = urlsplit(proxy)
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        head = b"HTTP/1.1 without an answer\r\n"
    status = head.partition(b"\r\n")[0].decode(errors="replace").partition(" ")[2]
    if not status.startswith("2"):
        raise ConnectionError(f"the proxy {shown(proxy)} answers {status}")
