"""Frames in and out of one socket, and the heartbeats that tell whether it is alive.

Reading: every chunk is cut into frames at once and each frame goes to the handler of its channel.
Writing: parts are collected and joined once per turn of the event loop, so that a thousand
publishes are one `send`. A callback in `due` may add frames at the very end of a turn (acks that
fit in one frame). A callback in `written` is called when the kernel has taken all written bytes.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from typing import cast

from bridge.broker.connection.frame_handler import FrameHandler
from bridge.broker.errors import ConnectionLost, TlsRefused
from bridge.socket_writer import SocketWriter
from bridge.wire.amqp091 import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    HEARTBEAT,
)

FRAME_MAX_DEFAULT = 131_072
"""RabbitMQ's default; it holds until the connection is tuned, and when RabbitMQ sets no limit."""

PARTS_MAX = 4_000
"""Number of unjoined parts above which they are written before the end of the turn."""

PAUSE_BYTES = 1 << 20
"""Number of unsent bytes from which on the transport watches `UNSENT_BYTES_MAX`."""

UNSENT_POLL_S = 0.002
"""Interval of checks whether the kernel has taken all bytes, for the callbacks in `written`."""

UNSENT_BYTES_MAX = 64 << 20
"""Number of unsent bytes above which publishes are refused: room for several of the largest
messages that RabbitMQ 4 takes (16 MiB)."""


class Transport(asyncio.Protocol):
    """The socket of one connection.

    Attributes:
        handlers: channel number -> the handler of its frames.
        parts: frames to be written at the end of this turn.
        due: callbacks for the end of this turn, before `parts` are joined.
        written: callbacks, each called once when the kernel has all bytes, or the connection ends.
        is_full: too many bytes are unsent; nothing more may be published.
        is_blocked: RabbitMQ has an alarm and does not read.
        lost: why the connection ended; None while it lives.
        queue_answers: the number of answers from queues' own processes (consume, get).
        is_gone: set when the socket is closed, a turn of the loop after the loss.
        opened_s: when the connection was open, by the loop's clock; before that, when it began.
    """

    def __init__(self, on_lost: Callable[[ConnectionLost], None]) -> None:
        self.handlers: dict[int, FrameHandler] = {}
        self.parts: list[bytes] = []
        self.due: list[Callable[[], None]] = []
        self.written: list[Callable[[], None]] = []
        self.is_full = False
        self.is_blocked = False
        self.lost: ConnectionLost | None = None
        self.queue_answers = 0
        self.is_gone = asyncio.Event()
        self.payload_max = FRAME_MAX_DEFAULT - FRAME_OVERHEAD
        self.loop = asyncio.get_running_loop()
        self.opened_s = self.loop.time()
        self._on_lost = on_lost
        self._socket: asyncio.Transport | None = None
        self._writer: SocketWriter | None = None
        self._unsent_watch: asyncio.Handle | None = None
        self._rest = b""
        self._is_flush_due = False
        self._is_paused = False
        self._has_heard = True
        self._has_written = True
        self._silent_ticks = 0
        self._heartbeat: asyncio.TimerHandle | None = None

    def connection_made(
        self, transport: asyncio.BaseTransport, plain: asyncio.Transport | None = None
    ) -> None:
        """Keep the socket, and with TLS the transport below."""
        self._socket = cast(asyncio.Transport, transport)
        self._socket.set_write_buffer_limits(high=PAUSE_BYTES)
        self._writer = SocketWriter(self._socket, plain)

    def data_received(self, data: bytes) -> None:
        """Cut a chunk into frames and hand them out."""
        self._has_heard = True
        if self._rest:
            data = self._rest + data
        at = 0
        size = len(data)
        handlers = self.handlers
        read_head = FRAME_HEAD.unpack_from
        try:
            while size - at >= FRAME_OVERHEAD:
                kind, channel, length = read_head(data, at)
                start = at + 7
                end = start + length
                if end >= size:
                    if length > self.payload_max or kind not in (1, 2, 3, 8):
                        raise ValueError(f"a frame of type {kind} and {length} bytes")
                    break
                if data[end] != FRAME_END:
                    raise ValueError(f"a frame of type {kind} that does not end with 0xCE")
                at = end + 1
                if kind == FRAME_HEARTBEAT:
                    continue
                handler = handlers.get(channel)
                if handler is None:
                    if self.lost is not None:
                        return
                    raise ValueError(f"a frame for channel {channel}, which is not open")
                if kind == FRAME_METHOD:
                    handler.on_method(data, start, end)
                elif kind == FRAME_BODY:
                    handler.on_body(data, start, end)
                elif kind == FRAME_HEADER:
                    handler.on_header(data, start, end)
                else:
                    raise ValueError(f"a frame of type {kind}")
        except (ValueError, IndexError, struct.error) as error:
            failure = ConnectionLost(text=f"what came is not AMQP 0-9-1: {error}")
            failure.__cause__ = error
            self.lose(failure)
            return
        self._rest = data[at:] if at < size else b""

    def eof_received(self) -> None:
        """Let the socket close: RabbitMQ sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Set `is_gone`, and end the connection if it has not ended yet."""
        self.is_gone.set()
        error: ConnectionLost
        if isinstance(exc, ssl.SSLError):
            error = TlsRefused.of(exc)
        else:
            text = f"RabbitMQ closed the connection ({exc or 'end of stream'})"
            error = ConnectionLost(text=text)
        error.__cause__ = exc
        self.lose(error)

    def pause_writing(self) -> None:
        """Begin to count the unsent bytes: there are many (`PAUSE_BYTES`)."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Stop counting the unsent bytes: few are left, and publishes are allowed again."""
        self._is_paused = False
        self.is_full = False

    def write(self, frame: bytes) -> None:
        """Write a frame at the end of this turn of the loop."""
        self.parts.append(frame)
        if not self._is_flush_due:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Schedule `flush` for the end of this turn, unless it is scheduled already."""
        if not self._is_flush_due and self.lost is None:
            self._is_flush_due = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Run the callbacks in `due`, and write all collected frames."""
        self._is_flush_due = False
        if self.lost is not None or self._socket is None:
            self.parts.clear()
            self.due.clear()
            return
        if self.due:
            due, self.due = self.due, []
            for emit in due:
                emit()
        if self.parts:
            self._has_written = True
            joined = b"".join(self.parts)
            self.parts.clear()
            self._send(joined)
        if self.written:
            self._tell_written()

    def _send(self, data: bytes) -> None:
        """Give as much as possible to the kernel now, and the rest to the event loop."""
        assert self._writer is not None
        self._writer.write(data)
        if self._is_paused and self._writer.unsent_bytes > UNSENT_BYTES_MAX:
            self.is_full = True

    def _tell_written(self) -> None:
        """Call the callbacks in `written` once the kernel has taken all bytes."""
        assert self._writer is not None
        if not self._writer.unsent_bytes:
            self._tell()
        elif self._unsent_watch is None:
            # uvloop writes TLS bytes at the end of the turn.
            self._unsent_watch = self.loop.call_soon(self._watch_unsent)

    def _watch_unsent(self) -> None:
        assert self._writer is not None
        self._unsent_watch = None
        if self._writer.unsent_bytes:
            self._unsent_watch = self.loop.call_later(UNSENT_POLL_S, self._watch_unsent)
        else:
            self.flush()  # frames may have been added since, for which callbacks wait, too

    def _tell(self) -> None:
        written, self.written = self.written, []
        for tell in written:
            tell()

    def start_heartbeats(self, interval_s: float) -> None:
        """Send a heartbeat when nothing else was sent, and end the connection in silence.

        The silence is two intervals without a byte from RabbitMQ.
        """
        if interval_s > 0:
            self._heartbeat = self.loop.call_later(interval_s / 2, self._beat, interval_s)

    def _beat(self, interval_s: float) -> None:
        # Two intervals of silence are the end: https://www.rabbitmq.com/docs/heartbeats
        self._silent_ticks = 0 if self._has_heard else self._silent_ticks + 1
        self._has_heard = False
        if self._silent_ticks >= 4:
            self.lose(ConnectionLost(text=f"RabbitMQ was silent for {2 * interval_s:g} s"))
            return
        if not self._has_written and not self._is_paused:
            self.write(HEARTBEAT)
            self.flush()
        self._has_written = False
        self._heartbeat = self.loop.call_later(interval_s / 2, self._beat, interval_s)

    def lose(self, error: ConnectionLost) -> None:
        """End the connection at once, for this reason."""
        if self.lost is not None:
            return
        self.lost = error
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._unsent_watch is not None:
            self._unsent_watch.cancel()
        if self._socket is not None:
            self._socket.abort()
        else:
            self.is_gone.set()
        self.parts.clear()
        self.due.clear()
        self._rest = b""
        self._on_lost(error)
        self._tell()
