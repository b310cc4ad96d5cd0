"""Raw HTTP and raw WebSocket frames, for what no HTTP client does."""

from __future__ import annotations

import asyncio
import os
import ssl
from itertools import cycle

from tests.conformance.client import Client

UPGRADE = (
    b"GET /$servicebus/websocket HTTP/1.1\r\n"
    b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: AMQPWSB10\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The answer to that key: the example of RFC 6455, section 1.3."""

BINARY, CLOSE, PING, PONG = 2, 8, 9, 10


def masked(payload: bytes, *, opcode: int = BINARY, first: int = 0x80) -> bytes:
    """Return a client's frame; `first` has the bits beside the opcode."""
    key = os.urandom(4)
    size = len(payload)
    if size < 126:
        head = bytes((first | opcode, 0x80 | size))
    elif size < 65_536:
        head = bytes((first | opcode, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((first | opcode, 0xFF)) + size.to_bytes(8, "big")
    return head + key + bytes(each ^ bit for each, bit in zip(payload, cycle(key), strict=False))


class WebSocket:
    """Looks like a reader and a writer of a stream, to a `Client`.

    Attributes:
        frames: (opcode, payload) of the frames that are not binary.
        piece: so many bytes are sent in a frame.
        transport: below the frames.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.piece = 1 << 30
        self._reader = reader
        self._writer = writer
        self.transport = writer.transport

    @classmethod
    async def connect(
        cls,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        subprotocol: bytes = b"AMQPWSB10",
        upgrade: bytes = UPGRADE,
    ) -> WebSocket:
        """Upgrade a connection."""
        name = "localhost" if tls is not None else None
        streams = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
        opened = cls(*streams)
        opened.send(upgrade.replace(b"AMQPWSB10", subprotocol))
        head = await opened._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        assert b"Sec-WebSocket-Accept: " + ACCEPT in head, head
        taken = subprotocol.split(b", ")[-1]
        assert b"Sec-WebSocket-Protocol: " + taken + b"\r\n" in head, head
        assert b"Extensions" not in head, head
        return opened

    def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._writer.write(data)

    def write(self, data: bytes) -> None:
        """Write in frames."""
        for at in range(0, len(data), self.piece):
            self.send(masked(data[at : at + self.piece]))

    async def read(self, size: int = 0) -> bytes:
        """Return the payload of the next binary frame; nothing at the end."""
        try:
            while True:
                opcode, payload = await self._frame()
                if opcode == BINARY:
                    return payload
                self.frames.append((opcode, payload))
                if opcode == CLOSE:
                    self.send(masked(payload, opcode=CLOSE))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def _frame(self) -> tuple[int, bytes]:
        first, size = await self._reader.readexactly(2)
        assert first & 0xF0 == 0x80, "whole frames without extensions"
        if size >= 126:
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8), "big")
        return first & 0x0F, await self._reader.readexactly(size)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def web_client(port: int, *, tls: ssl.SSLContext | None = None, piece: int = 0) -> Client:
    """Return a client over a WebSocket, logged in, without a token."""
    socket = await WebSocket.connect(port, tls=tls)
    socket.piece = piece or socket.piece
    return await Client(socket, socket).open()  # type: ignore[arg-type]


def stream_of(client: Client) -> WebSocket:
    """Return what is below a client."""
    assert isinstance(client._writer, WebSocket)
    return client._writer


async def answer_to(port: int, said: bytes, *, within_s: float = 120) -> bytes:
    """Say something on a connection of its own; return all that comes until it ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(said)
        async with asyncio.timeout(within_s):
            return await _all(reader)
    finally:
        writer.transport.abort()


async def _all(reader: asyncio.StreamReader) -> bytes:
    parts = []
    try:
        while part := await reader.read(65_536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)
