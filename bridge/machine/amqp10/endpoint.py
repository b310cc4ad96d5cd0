"""The server's end of one AMQP 1.0 connection, without I/O; `client` has the client's end.

    for event in endpoint.receive(data, now_ms):
        ...                                  # accept links, settle, send: before the next event
    transport.write(endpoint.take_output())

Layers follow one another: protocol header and SASL, then protocol header and AMQP. A peer that
breaks a rule loses what the rule protects: its link, its session or the connection (see `faults`);
no input raises an exception out of `receive`. Time enters as `now_ms`, of any monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any

from bridge.machine.amqp10.events import Closed, Event, Opened, SaslChosen
from bridge.machine.amqp10.faults import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    ConnectionFault,
    SessionFault,
    make_error,
)
from bridge.machine.amqp10.framing import FrameReader
from bridge.machine.amqp10.limits import Limits
from bridge.machine.amqp10.link import IncomingLink
from bridge.machine.amqp10.session import AmqpSession
from bridge.wire.amqp10.composite import decode_composite
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.frame import (
    AMQP_FRAME,
    EMPTY_FRAME,
    FRAME_SIZE_MIN_MAX,
    SASL_FRAME,
    ProtocolHeader,
    encode_frame,
)
from bridge.wire.amqp10.performatives import (
    Begin,
    Close,
    End,
    Error,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)
from bridge.wire.native_refusal import HEADERS as NATIVE_HEADERS
from bridge.wire.native_refusal import answer as answer_native

_HEARTBEAT_MS_MIN = 500


class ConnectionState(Enum):
    """The progress of a connection."""

    EXPECT_HEADER = "expects a protocol header"
    EXPECT_SASL_INIT = "expects a mechanism"
    EXPECT_MECHANISMS = "expects the server's mechanisms"
    EXPECT_OUTCOME = "expects the server's verdict"
    SASL_ASKED = "waits for the verdict on a mechanism"
    EXPECT_AMQP_HEADER = "expects the AMQP header"
    EXPECT_OPEN = "expects open"
    OPEN = "open"
    CLOSING = "has closed, waits for the peer's close"
    FINISHED = "over"


_EXPECTING_HEADER = (ConnectionState.EXPECT_HEADER, ConnectionState.EXPECT_AMQP_HEADER)
_EXPECTING_SASL = (
    ConnectionState.EXPECT_SASL_INIT,
    ConnectionState.EXPECT_MECHANISMS,
    ConnectionState.EXPECT_OUTCOME,
)
_TAKING_FRAMES = (ConnectionState.OPEN, ConnectionState.EXPECT_OPEN, ConnectionState.CLOSING)


class AmqpEndpoint:
    """One connection.

    Args:
        mechanisms: the offered SASL mechanisms.
        native_text: what a client of AMQP 0-9-1 is told, RabbitMQ's own protocol; "" if nothing.

    Attributes:
        events: events that were not given out yet.
        held_bytes: payload of messages that have not come whole, on all links.
        unfinished_bytes: bytes kept of unfinished messages and of a frame, at the last input.
        unfinished: the links with an unfinished message, and since when, oldest first.
        link_count: links that the peer has attached and not detached, in all sessions.
        is_authenticated: the peer has proved its identity.
        now_ms: the time of the last input or tick.
    """

    def __init__(
        self,
        *,
        container_id: str,
        mechanisms: tuple[str, ...],
        limits: Limits,
        now_ms: int,
        native_text: str = "",
    ) -> None:
        self.container_id = container_id
        self.limits = limits
        self.state = ConnectionState.EXPECT_HEADER
        self.peer: Open | None = None
        self.sessions: dict[int, AmqpSession] = {}
        self.sessions_to_flush: dict[AmqpSession, None] = {}
        self.frame_out_bytes = FRAME_SIZE_MIN_MAX
        self.output_bytes = 0
        self.held_bytes = 0
        self.unfinished_bytes = 0
        self.unfinished: dict[IncomingLink, int] = {}
        self.link_count = 0
        self._frame_count = 0
        self._partial_frame: tuple[int, int] | None = None
        self.is_authenticated = False
        self._mechanisms = mechanisms
        self._native_text = native_text
        self._reader = FrameReader(limits.sasl_frame_bytes_max)
        self.events: deque[Event] = deque()
        self._output: list[bytes] = []
        self._ended_channels: set[int] = set()
        self._is_open_sent = False
        self._heartbeat_ms = limits.heartbeat_ms_max
        self.now_ms = self._heard_ms = self._spoke_ms = now_ms

    def __repr__(self) -> str:
        return (
            f"<AmqpEndpoint {self.state.value}; sessions={len(self.sessions)} "
            f"output={self.output_bytes}>"
        )

    # -- bytes in

    def receive(self, data: bytes, now_ms: int) -> Iterator[Event]:
        """Take bytes and yield their events; act on each event before asking for the next."""
        self.now_ms = self._heard_ms = now_ms
        if self.state is ConnectionState.FINISHED:
            return
        self._reader.feed(data)
        events = self.events
        try:
            while self._step():
                while events:
                    yield events.popleft()
            for frame in self._reader.frames() if self.state in _TAKING_FRAMES else ():
                self._on_frame(*frame)
                while events:
                    yield events.popleft()
                if self.state not in _TAKING_FRAMES:
                    break
        except ConnectionFault as fault:
            self._fail(fault.error)
        self._note_unfinished()
        while events:
            yield events.popleft()

    def _note_unfinished(self) -> None:
        kept_bytes = len(self._reader.kept)
        self.unfinished_bytes = self.held_bytes + kept_bytes
        if not kept_bytes:
            self._partial_frame = None
        elif self._partial_frame is None or self._partial_frame[0] != self._frame_count:
            self._partial_frame = (self._frame_count, self.now_ms)

    @property
    def missing_bytes(self) -> int:
        """The missing bytes of a frame that has come in part."""
        return self._reader.missing_bytes

    @property
    def unfinished_since_ms(self) -> int | None:
        """Since when the oldest message or frame is unfinished; `None` if there is none."""
        since_ms = None if self._partial_frame is None else self._partial_frame[1]
        for oldest_ms in self.unfinished.values():
            return oldest_ms if since_ms is None else min(oldest_ms, since_ms)
        return since_ms

    def _take_events(self) -> list[Event]:
        events = list(self.events)
        self.events.clear()
        return events

    def attached(self) -> None:
        """Count a link that the peer attaches.

        Raises:
            ConnectionFault: the connection has the most links allowed.
        """
        limits = self.limits
        most = limits.links_max if self.is_authenticated else limits.unauthenticated_links_max
        if self.link_count >= most:
            before = "" if self.is_authenticated else "Before a token has been accepted: "
            raise ConnectionFault(
                RESOURCE_LIMIT_EXCEEDED, f"{before}A connection has {most} links at most."
            )
        self.link_count += 1

    def _step(self) -> bool:
        """Process one protocol header or SASL frame; return whether there may be another."""
        if self.state in _TAKING_FRAMES:
            return False
        if self.state in _EXPECTING_HEADER:
            header = self._reader.header()
            if header is None:
                return False
            self._on_header(header)
            return True
        if self.state in _EXPECTING_SASL:
            for frame_type, _, data, at, end in self._reader.frames():
                self._on_sasl_frame(frame_type, data, at, end)
                return True
        return False

    def _on_header(self, header: bytes) -> None:
        if header == ProtocolHeader.SASL.value and self.state is ConnectionState.EXPECT_HEADER:
            self.write(
                header,
                encode_frame(0, SaslMechanisms(self._mechanisms), frame_type=SASL_FRAME),
            )
            self.state = ConnectionState.EXPECT_SASL_INIT
        elif header == ProtocolHeader.AMQP.value:
            self.write(header)
            self._reader.frame_bytes_max = self._frame_bytes_max
            self.state = ConnectionState.EXPECT_OPEN
        elif header in NATIVE_HEADERS and self._native_text:
            self.write(answer_native(self._native_text))
            self._finish(make_error(FRAMING_ERROR, self._native_text), is_fault=True)
        else:
            # part 2, 2.2: answer with a header that would have been understood, and close
            expected = (
                ProtocolHeader.SASL
                if self.state is ConnectionState.EXPECT_HEADER
                else ProtocolHeader.AMQP
            )
            self.write(expected.value)
            error = make_error(FRAMING_ERROR, f"{header!r} is no protocol header.")
            self._finish(error, is_fault=True)

    def _on_sasl_frame(self, frame_type: int, data: bytes, at: int, end: int) -> None:
        try:
            init, at = decode_composite(data, at)
        except DecodeError:
            init = None
        if frame_type != SASL_FRAME or not isinstance(init, SaslInit) or at > end:
            self.write(encode_frame(0, SaslOutcome(1), frame_type=SASL_FRAME))
            error = make_error(FRAMING_ERROR, "A SASL mechanism was expected.")
            self._finish(error, is_fault=True)
            return
        self.state = ConnectionState.SASL_ASKED
        self.events.append(SaslChosen(init.mechanism, init.initial_response or b""))

    def sasl_outcome(self, *, is_ok: bool) -> None:
        """Answer `SaslChosen`."""
        assert self.state is ConnectionState.SASL_ASKED, self
        self.write(encode_frame(0, SaslOutcome(0 if is_ok else 1), frame_type=SASL_FRAME))
        if is_ok:
            self.state = ConnectionState.EXPECT_AMQP_HEADER
        else:
            self._finish(None)

    def authenticated(self) -> None:
        """Lift the limits for an unauthenticated peer: the peer has proved its identity.

        Called when the peer's first token, or its key, has been accepted; a second call changes
        nothing.
        """
        self.is_authenticated = True
        if self.state in _TAKING_FRAMES:
            self._reader.frame_bytes_max = self._frame_bytes_max

    @property
    def message_bytes_max(self) -> int:
        """The size limit of a message on any link, beside the link's own limit; 0: any size."""
        return 0 if self.is_authenticated else self.limits.unauthenticated_message_bytes_max

    @property
    def _frame_bytes_max(self) -> int:
        limits = self.limits
        known = limits.frame_bytes_max
        return (
            known if self.is_authenticated else min(known, limits.unauthenticated_frame_bytes_max)
        )

    # -- frames

    def _on_frame(self, frame_type: int, channel: int, data: bytes, at: int, end: int) -> None:
        self._frame_count += 1
        if frame_type != AMQP_FRAME:
            raise ConnectionFault(FRAMING_ERROR, f"{frame_type} is no type of a frame here.")
        if at == end:
            return  # a heartbeat
        try:
            performative, at = decode_composite(data, at)
        except DecodeError as error:
            raise ConnectionFault(DECODE_ERROR, str(error)) from None
        if at > end:
            raise ConnectionFault(DECODE_ERROR, "A performative is longer than its frame.")
        if self.state is ConnectionState.CLOSING and not isinstance(performative, Close):
            return
        if isinstance(performative, Open):
            self._on_open(performative)
        elif isinstance(performative, Close):
            self._on_close(performative)
        elif self.state is not ConnectionState.OPEN:
            raise ConnectionFault(ILLEGAL_STATE, "The connection is not open.")
        elif isinstance(performative, Begin):
            self._on_begin(channel, performative)
        else:
            self._on_session_frame(channel, performative, data[at:end])

    def _on_open(self, performative: Open) -> None:
        if self.state is not ConnectionState.EXPECT_OPEN:
            raise ConnectionFault(ILLEGAL_STATE, "The connection is open already.")
        self._write_open()
        if performative.max_frame_size < FRAME_SIZE_MIN_MAX:
            raise ConnectionFault(
                INVALID_FIELD, f"max-frame-size is below {FRAME_SIZE_MIN_MAX} bytes."
            )
        self.peer = performative
        self.frame_out_bytes = min(performative.max_frame_size, self.limits.frame_out_bytes_max)
        if performative.idle_time_out:
            self._heartbeat_ms = max(
                min(performative.idle_time_out // 2, self.limits.heartbeat_ms_max),
                _HEARTBEAT_MS_MIN,
            )
        self.state = ConnectionState.OPEN
        self.events.append(Opened(performative))

    def _write_open(self) -> None:
        if self._is_open_sent:
            return
        self._is_open_sent = True
        self.write(encode_frame(0, self._our_open()))

    def _our_open(self) -> Open:
        limits = self.limits
        return Open(
            container_id=self.container_id,
            max_frame_size=limits.frame_bytes_max,
            channel_max=limits.channel_max,
            idle_time_out=limits.idle_time_out_ms,
        )

    def _on_begin(self, channel: int, begin: Begin) -> None:
        assert self.peer is not None
        if channel > min(self.limits.channel_max, self.peer.channel_max):
            raise ConnectionFault(
                FRAMING_ERROR,
                f"Channel {channel} is above channel-max ({self.limits.channel_max}).",
            )
        if channel in self.sessions:
            raise ConnectionFault(ILLEGAL_STATE, f"Channel {channel} has a session already.")
        most = self.limits.unauthenticated_sessions_max
        if not self.is_authenticated and len(self.sessions) >= most:
            raise ConnectionFault(
                RESOURCE_LIMIT_EXCEEDED,
                f"Before a token has been accepted: A connection has {most} sessions at most.",
            )
        if begin.remote_channel is not None:
            raise ConnectionFault(INVALID_FIELD, "No session was offered to be answered.")
        self._ended_channels.discard(channel)
        session = self.sessions[channel] = AmqpSession(self, channel)
        session.take_begin(begin)
        session.write_begin(channel)

    def _on_session_frame(self, channel: int, performative: Any, payload: bytes) -> None:
        session = self.sessions.get(channel)
        if session is None:
            if channel in self._ended_channels:
                return  # the Python SDK detaches a link after it has ended the session
            raise ConnectionFault(FRAMING_ERROR, f"Channel {channel} has no session.")
        is_end = isinstance(performative, End)
        if session.is_ended and not is_end:
            return
        try:
            session.on_frame(performative, payload)
        except SessionFault as fault:
            session.end(fault.error)
        if is_end:
            del self.sessions[channel]
            self.sessions_to_flush.pop(session, None)
            self._ended_channels.add(channel)

    # -- the end

    def _on_close(self, close: Close) -> None:
        error = close.error if isinstance(close.error, Error) else None
        was_closing = self.state is ConnectionState.CLOSING
        if not was_closing:
            self._write_open()
            self._write_close(None)
        self._finish(error, tell=not was_closing)

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Close the connection, then wait for the peer's close (or for the transport's end)."""
        if self.state in (ConnectionState.CLOSING, ConnectionState.FINISHED):
            return
        if self.state in _TAKING_FRAMES:
            self._write_open()
            self._write_close(make_error(condition, description) if condition else None)
            self._end_sessions()
            self.events.clear()
            self.state = ConnectionState.CLOSING
        else:
            self._finish(None, tell=False)

    def _write_close(self, error: Error | None) -> None:
        self._flush_sessions()
        self.write(encode_frame(0, Close(error)))

    def _fail(self, error: Error) -> None:
        """End the connection for a fault of the peer; no more input is read."""
        if self.state is ConnectionState.CLOSING:
            self._finish(error, tell=False)
            return
        if self.state in _TAKING_FRAMES:
            self._write_open()
            self._write_close(error)
        self._finish(error, is_fault=True)

    def _finish(self, error: Error | None, *, is_fault: bool = False, tell: bool = True) -> None:
        if self.state is ConnectionState.FINISHED:
            return
        self._end_sessions()
        self.state = ConnectionState.FINISHED
        if tell:
            self.events.append(Closed(error, is_fault))

    def _end_sessions(self) -> None:
        for session in self.sessions.values():
            session.close_links()
        self.sessions.clear()

    def lost(self) -> list[Event]:
        """Forget the lost transport; return the events of the links and the connection."""
        self._finish(None)
        self._output.clear()
        return self._take_events()

    # -- time

    @property
    def deadline_ms(self) -> int:
        """When `tick` must be called at the latest."""
        silence_ms = self._heard_ms + 2 * self.limits.idle_time_out_ms
        return min(silence_ms, self._spoke_ms + self._heartbeat_ms)

    def heard(self, now_ms: int) -> None:
        """Count the peer as alive, although its input is not read at the moment."""
        self._heard_ms = now_ms

    def tick(self, now_ms: int) -> list[Event]:
        """Let time pass: write heartbeats, and close when the peer is silent."""
        self.now_ms = now_ms
        if self.state is ConnectionState.FINISHED:
            return []
        if now_ms - self._heard_ms >= 2 * self.limits.idle_time_out_ms:
            self._fail(
                make_error(
                    CONNECTION_FORCED,
                    "The connection was inactive for more than the allowed "
                    f"{2 * self.limits.idle_time_out_ms} milliseconds and is closed.",
                )
            )
        elif now_ms - self._spoke_ms >= self._heartbeat_ms:
            if self._is_open_sent:
                self.write(EMPTY_FRAME)
            self._spoke_ms = now_ms
        return self._take_events()

    # -- bytes out

    def write(self, *pieces: bytes) -> None:
        """Append bytes to the output."""
        self._output += pieces
        for piece in pieces:
            self.output_bytes += len(piece)

    def _flush_sessions(self) -> None:
        for session in self.sessions_to_flush:
            session.flush()
        self.sessions_to_flush.clear()

    def take_output(self) -> bytes:
        """Return the bytes to write now."""
        if self.sessions_to_flush:
            self._flush_sessions()
        if not self._output:
            return b""
        output = b"".join(self._output)
        self._output.clear()
        self.output_bytes = 0
        self._spoke_ms = self.now_ms
        return output
