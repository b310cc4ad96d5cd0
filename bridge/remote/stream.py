"""The bytes of a connection: TCP, TLS, or the frames of a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

from bridge.remote.address import WEBSOCKET_PROTOCOL, RemoteAddress
from bridge.remote.errors import NOT_REACHED, RemoteRefused
from bridge.remote.proxy import proxy_of
from bridge.remote.reachability import not_reached
from bridge.remote.tls import context_of

OnBytes = Callable[[bytes], None]
OnLost = Callable[[BaseException | None], None]

CLOSE_S = 2.0
"""How long the end of a WebSocket waits for the server's answer."""


class Stream(Protocol):
    """What a connection writes to; what comes, and the end, are told to its owner."""

    def write(self, data: bytes) -> None:
        """Write bytes, now or soon, in order."""

    def close(self) -> None:
        """Close when everything is written."""

    def abort(self) -> None:
        """Close at once."""


async def connect(address: RemoteAddress, on_bytes: OnBytes, on_lost: OnLost) -> Stream:
    """Connect to a namespace.

    Args:
        on_bytes: called with what comes.
        on_lost: called once, at the end, with the error if there was one.

    Raises:
        RemoteConnectionLost: not reached, or its certificate is not trusted; with `retryable`
            whether that may pass.
        RemoteRefused: the CA file cannot be read, aiohttp is not installed, or the environment
            names a proxy that is none of HTTP.
    """
    context = context_of(address)
    try:
        if address.transport == "websocket":
            return await _WebSocket.connect(address, context, on_bytes, on_lost)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(
            lambda: _Socket(on_bytes, on_lost),
            address.host,
            address.port,
            ssl=context,
            server_hostname=address.host if context is not None else None,
        )
        return protocol
    except (OSError, ValueError) as error:
        raise not_reached(address.url, error) from error


class _Socket(asyncio.Protocol):
    """TCP or TLS."""

    def __init__(self, on_bytes: OnBytes, on_lost: OnLost) -> None:
        self._on_bytes = on_bytes
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._on_bytes(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(exc)

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def abort(self) -> None:
        assert self._transport is not None
        self._transport.abort()


class _WebSocket:
    """Binary frames of a WebSocket, by aiohttp."""

    def __init__(self, client: Any, socket: Any, on_bytes: OnBytes, on_lost: OnLost) -> None:
        self._client = client
        self._socket = socket
        self._on_bytes = on_bytes
        self._on_lost = on_lost
        self._output: list[bytes] = []
        self._has_output = asyncio.Event()
        self._is_closing = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    @classmethod
    async def connect(
        cls,
        address: RemoteAddress,
        context: ssl.SSLContext | None,
        on_bytes: OnBytes,
        on_lost: OnLost,
    ) -> _WebSocket:
        """Connect, through the proxy of the environment if it names one."""
        try:
            import aiohttp
        except ModuleNotFoundError:
            text = "AMQP over WebSockets needs aiohttp: pip install '.[tools]'."
            raise RemoteRefused(NOT_REACHED, text) from None
        proxy = proxy_of(address.url)
        client = aiohttp.ClientSession()
        try:
            socket = await client.ws_connect(
                address.url,
                protocols=(WEBSOCKET_PROTOCOL,),
                proxy=proxy,
                ssl=context if context is not None else True,
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
            )
        except aiohttp.ClientError as error:
            await client.close()
            raise not_reached(address.url, error, proxy=proxy) from error
        except BaseException:
            await client.close()
            raise
        return cls(client, socket, on_bytes, on_lost)

    def write(self, data: bytes) -> None:
        self._output.append(data)
        self._has_output.set()

    def close(self) -> None:
        self._is_closing = True
        self._has_output.set()

    def abort(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        """Read and write until one of them ends, then tell."""
        error: BaseException | None = None
        writing = asyncio.get_running_loop().create_task(self._write())
        try:
            async for message in self._socket:
                if isinstance(message.data, bytes):
                    self._on_bytes(message.data)
                else:
                    error = message.data if isinstance(message.data, BaseException) else None
                    break
            error = error or self._socket.exception()
        except asyncio.CancelledError:
            error = ConnectionAbortedError("The connection was aborted.")
        except Exception as failed:  # whatever aiohttp raises: the connection is over
            error = failed
        finally:
            writing.cancel()
            with contextlib.suppress(Exception):
                await self._client.close()
            self._on_lost(error)

    async def _write(self) -> None:
        while True:
            await self._has_output.wait()
            self._has_output.clear()
            output, self._output = b"".join(self._output), []
            with contextlib.suppress(ConnectionError):  # the reader is told, too
                if output:
                    await self._socket.send_bytes(output)
                if self._is_closing and not self._output:
                    await self._socket.close()
                    return
