"""A transport that carries a connection's bytes in the binary frames of a WebSocket.

Azure's clients call this "AMQP over WebSockets": the bytes of AMQP in binary frames, cut anywhere
(AMQP 1.0 WebSocket Binding, OASIS). aiohttp answers the upgrade; from then on the bytes come here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bridge.socket_writer import SocketWriter
from bridge.wire.websocket import (
    BINARY,
    CLOSE,
    NORMAL,
    PONG,
    WebSocketError,
    WebSocketReader,
    frame_head,
)

PATHS = ("/$servicebus/websocket", "/$servicebus/websocket/")
"""Paths where Azure's SDKs ask for a WebSocket; .NET's asks with the slash."""

SUBPROTOCOLS = ("AMQPWSB10", "amqp")
"""The name in the drafts of the binding, which most of Azure's SDKs offer, and the registered name,
which .NET and Go programs offer."""

_HIDDEN = frozenset(("socket", "ssl_object"))
"""Hidden attributes of the transport: a user of them would write past the frames."""


class WebSocket(asyncio.Protocol, asyncio.Transport):
    """An adapter with WebSocket frames below and a protocol's bytes above.

    The end of output is WebSocket's close: a client answers with a close of its own, and the
    connection ends.

    Args:
        below: the transport that takes the frames.
        above: the protocol that gets the bytes.
        on_fault: called when the client has broken WebSocket's rules.
    """

    def __init__(
        self,
        below: asyncio.Transport,
        above: asyncio.Protocol,
        on_fault: Callable[[WebSocketError], None],
    ) -> None:
        super().__init__()
        self._below = below
        self._above = above
        self._on_fault = on_fault
        self._writer = SocketWriter(below)
        self._reader = WebSocketReader()
        self._is_write_over = False
        self._is_read_over = False
        self._is_writing_paused = False
        above.connection_made(self)

    # -- what the connection below calls

    def data_received(self, data: bytes) -> None:
        """Take frames, or parts of frames."""
        if self._is_read_over:
            return
        try:
            read = self._reader.feed(data)
        except WebSocketError as error:
            self._is_read_over = True
            self._on_fault(error)
            self._say_close(error.code)
            self._below.close()
            return
        if read.payload:
            self._above.data_received(read.payload)
        if read.ping is not None and not self._is_writing_paused:
            self._say(PONG, read.ping)
        if read.close is not None:
            self._is_read_over = True
            self._say_close(NORMAL)
            self._below.close()

    def eof_received(self) -> bool | None:
        """Pass on the client's end of input."""
        return self._above.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on the end of the connection."""
        self._above.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass on that the client does not read."""
        self._is_writing_paused = True
        self._above.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client reads again."""
        self._is_writing_paused = False
        self._above.resume_writing()

    # -- what the protocol above calls

    def write(self, data: Any) -> None:
        """Write bytes, in one frame."""
        if data:
            self._say(BINARY, bytes(data))

    def _say(self, opcode: int, payload: bytes) -> None:
        if not self._is_write_over and not self._below.is_closing():
            self._writer.write(frame_head(opcode, len(payload)) + payload)

    def _say_close(self, code: int) -> None:
        self._say(CLOSE, code.to_bytes(2, "big"))
        self._is_write_over = True

    def can_write_eof(self) -> bool:
        """Whether `write_eof` may be called."""
        return True

    def write_eof(self) -> None:
        """End the output with a close frame."""
        self._say_close(NORMAL)

    def close(self) -> None:
        """End the connection when all output is written."""
        self._say_close(NORMAL)
        self._below.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._below.abort()

    def is_closing(self) -> bool:
        """Whether the connection ends or has ended."""
        return self._below.is_closing()

    def pause_reading(self) -> None:
        """Stop handing input up."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Resume handing input up."""
        self._below.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the buffer sizes at which the protocol is told to pause and resume writing."""
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the size of the unwritten output."""
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a property of the transport below, unless hidden."""
        return default if name in _HIDDEN else self._below.get_extra_info(name, default)
