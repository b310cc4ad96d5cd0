"""Frames in and out of one socket, and the heartbeats that tell whether it is alive.

Reading: every chunk is cut into frames at once and each frame goes to the sink of its channel.
Writing: parts are collected and joined once per turn of the event loop, so that a thousand
publishes are one `send`. A sink that wants to add something at the very end of a turn (acks that
can be said in one frame) registers itself in `due`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from bridge.broker import failpoint
from bridge.broker.answer import drained
from bridge.broker.endpoint import Endpoint
from bridge.broker.errors import BrokerError, ConnectionLost, TlsRefused
from bridge.broker.keeper import Keeper
from bridge.broker.outlet import Outlet
from bridge.broker.pledge import Pledge
from bridge.broker.sink import Sink
from bridge.broker.will import Will
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
"""RabbitMQ's own default; what is used until the connection is tuned, or when it sets no limit."""

PARTS_MAX = 4_000
"""So many unjoined parts are written without waiting for the end of the turn."""

PAUSE_BYTES = 1 << 20
"""Above this many unsent bytes `drain` waits."""

PROMISE_S = 0.005
"""So long what is promised may wait, unless something else is to be written: RabbitMQ then is woken
once for many acks, and leaves the machine to the client meanwhile."""

UNSENT_BYTES_MAX = 64 << 20
"""Above this many unsent bytes nothing more is published: several of the largest messages that
RabbitMQ 4 takes (16 MiB)."""


class Transport(asyncio.Protocol):
    """The socket of one connection.

    Attributes:
        sinks: channel number -> who takes its frames.
        parts: what is to be written at the end of this turn.
        due: called at the end of this turn, before `parts` are joined.
        written: called once after they were written, or promised to be (`pledge`), or when the
            connection has ended.
        is_full: too much is unsent; nothing more may be published.
        is_blocked: RabbitMQ has an alarm and does not read.
        lost: why the connection ended; None while it lives.
        is_gone: set when the socket is closed, a turn of the loop after the loss.
        will: where to put what is to be published after a kill; None where that cannot be.
    """

    def __init__(self, on_lost: Callable[[ConnectionLost], None]) -> None:
        self.sinks: dict[int, Sink] = {}
        self.parts: list[bytes] = []
        self.due: list[Callable[[], None]] = []
        self.written: list[Callable[[], None]] = []
        self.is_full = False
        self.is_blocked = False
        self.lost: ConnectionLost | None = None
        self.is_gone = asyncio.Event()
        self.will: Will | None = None
        self.payload_max = FRAME_MAX_DEFAULT - FRAME_OVERHEAD
        self.loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._socket: asyncio.Transport | None = None
        self._raw: socket.socket | None = None
        self._outlet: Outlet | None = None
        self._keeper: Keeper | None = None
        self._pledge: Pledge | None = None
        self._redemption: asyncio.TimerHandle | None = None
        self._is_urgent = False
        self._sent_bytes = 0
        self._rest = b""
        self._is_flush_due = False
        self._is_paused = False
        self._drained: list[asyncio.Future[None]] = []
        self._has_heard = True
        self._has_written = True
        self._silent_ticks = 0
        self._heartbeat: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        self._socket = cast(asyncio.Transport, transport)
        self._socket.set_write_buffer_limits(high=PAUSE_BYTES)

    def keep(self, keeper: Keeper, endpoint: Endpoint, *, is_direct: bool) -> None:
        """Have what was written outlive this process.

        With `is_direct` also know what is written, and promise; without it take a will, to be
        carried out at the endpoint.
        """
        assert self._socket is not None
        number = self._socket.get_extra_info("socket").fileno()
        self._raw = socket.socket(fileno=os.dup(number))
        outlet = Outlet(self._socket)
        with contextlib.suppress(OSError):  # then it is done without
            if not is_direct:
                self.will = Will(endpoint) if Will.is_possible() else None
            elif outlet.is_direct:
                self._outlet = outlet
                self.flush()
                if Pledge.is_possible() and self._socket.get_write_buffer_size() == 0:
                    self._pledge = Pledge(self._raw, self._sent_bytes)
        on_kept = partial(setattr, self, "_keeper", keeper)
        keeper.keep(self._raw, on_kept, self._pledge or self.will)

    @property
    def is_kept(self) -> bool:
        """Whether what was written is read by RabbitMQ even if this process is killed now.

        With TLS nobody can tell what the kernel has taken.
        """
        return (
            self._outlet is not None
            and self._keeper is not None
            and self._keeper.is_alive
            and self._socket is not None
            and self._socket.get_write_buffer_size() == 0
        )

    def data_received(self, data: bytes) -> None:
        """Cut a chunk into frames and hand them out."""
        self._has_heard = True
        if self._rest:
            data = self._rest + data
        at = 0
        size = len(data)
        sinks = self.sinks
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
                sink = sinks.get(channel)
                if sink is None:
                    if self.lost is not None:
                        return
                    raise ValueError(f"a frame for channel {channel}, which is not open")
                if kind == FRAME_METHOD:
                    sink.on_method(data, start, end)
                elif kind == FRAME_BODY:
                    sink.on_body(data, start, end)
                elif kind == FRAME_HEADER:
                    sink.on_header(data, start, end)
                else:
                    raise ValueError(f"a frame of type {kind}")
        except (ValueError, IndexError, struct.error) as error:
            failure = ConnectionLost(text=f"what came is not AMQP 0-9-1: {error}")
            failure.__cause__ = error
            self.lose(failure)
            return
        self._rest = data[at:] if at < size else b""

    def eof_received(self) -> None:
        """Let the socket close: RabbitMQ has said its last word."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the socket is gone."""
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
        """Make `drain` wait."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Let `drain` go on."""
        self._is_paused = False
        self.is_full = False
        self._release_drained(None)

    def write(self, frame: bytes) -> None:
        """Write at the end of this turn of the loop."""
        self.parts.append(frame)
        self._is_urgent = True
        if not self._is_flush_due:
            self.flush_soon()

    def hurry(self) -> None:
        """What is written in this turn is not to wait for more, though it is promised."""
        self._is_urgent = True

    def flush_soon(self) -> None:
        """See to it that what is in `parts` and `due` leaves at the end of this turn."""
        if not self._is_flush_due and self.lost is None:
            self._is_flush_due = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write all that was collected."""
        self._is_flush_due = False
        if self.lost is not None or self._socket is None:
            self.parts.clear()
            self.due.clear()
            return
        if self.due:
            due, self.due = self.due, []
            for emit in due:
                emit()
        is_urgent, self._is_urgent = self._is_urgent, False
        if self.parts:
            self._has_written = True
            joined = b"".join(self.parts)
            self.parts.clear()
            if self.written and self._promise(joined):
                self._tell_written()
                if is_urgent:
                    self.loop.call_soon(self._redeem)
                elif self._redemption is None:
                    self._redemption = self.loop.call_later(PROMISE_S, self._redeem)
                return
            self._send(self._promised() + joined)
        if self.written:
            self._tell_written()

    def _promise(self, data: bytes) -> bool:
        """See to it that this is written, even if the process is killed before `_redeem`."""
        return (
            self._pledge is not None and self.is_kept and self._pledge.add(data, self._sent_bytes)
        )

    def _promised(self) -> bytes:
        """Return what is to be written before anything else."""
        if self._redemption is not None:
            self._redemption.cancel()
            self._redemption = None
        return b"" if self._pledge is None else self._pledge.take()

    def _redeem(self) -> None:
        """Write what was promised."""
        data = self._promised()
        if data:
            failpoint.reach("transport.promised")
            self._send(data)

    def _send(self, data: bytes) -> None:
        """Give as much as possible to the kernel now, and the rest to the event loop."""
        assert self._socket is not None
        self._sent_bytes += len(data)
        if self._outlet is not None:
            self._outlet.write(data)
        else:
            self._socket.write(data)
        if self._is_paused and self._socket.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.is_full = True

    def _tell_written(self) -> None:
        written, self.written = self.written, []
        for tell in written:
            tell()

    def drain(self, timeout_s: float) -> Awaitable[None]:
        """Wait until little is unsent; BrokerSilent after the deadline."""
        if self.lost is not None:
            raise self.lost.again()
        self.flush()
        if not self._is_paused:
            return asyncio.sleep(0)
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._drained.append(waiter)
        return drained(waiter, timeout_s, self._forget_drained)

    def _forget_drained(self, waiter: asyncio.Future[None]) -> None:
        if waiter in self._drained:
            self._drained.remove(waiter)

    def start_heartbeats(self, interval_s: float) -> None:
        """Send one when nothing else was sent, and end the connection when nothing comes."""
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
        """End the connection here and now, for this reason."""
        if self.lost is not None:
            return
        self.lost = error
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._raw is not None:
            with contextlib.suppress(OSError):  # the keeper's duplicate would hold it open
                self._raw.shutdown(socket.SHUT_RDWR)
            self._raw.close()
            self._raw = self._keeper = None
        if self._pledge is not None:
            self._promised()
            self._pledge.close()
            self._pledge = None
        if self.will is not None:
            self.will.close()
            self.will = None
        if self._socket is not None:
            self._socket.abort()
        else:
            self.is_gone.set()
        self.parts.clear()
        self.due.clear()
        self._rest = b""
        self._release_drained(error)
        self._on_lost(error)
        self._tell_written()

    def _release_drained(self, error: BrokerError | None) -> None:
        waiters, self._drained = self._drained, []
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error.again())
