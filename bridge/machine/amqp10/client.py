"""The client's end of one AMQP 1.0 connection, without I/O.

    for event in endpoint.receive(data, now_ms):
        ...                                  # as at the server's end (`endpoint`)
    transport.write(endpoint.take_output())

It writes its protocol header when it is made, chooses its mechanism, and opens the connection; then
sessions are begun with `begin`, and links attached with `ClientSession.attach_sender` and
`attach_receiver`. A server that breaks a rule loses what the rule protects, with `Closed` or
`LinkDetached` and an error that has a name; no input raises an exception out of `receive`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from bridge.machine.amqp10.client_session import ClientSession
from bridge.machine.amqp10.endpoint import AmqpEndpoint, ConnectionState
from bridge.machine.amqp10.events import Event
from bridge.machine.amqp10.faults import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INTERNAL_ERROR,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    ConnectionFault,
    make_error,
)
from bridge.machine.amqp10.limits import Limits
from bridge.wire.amqp10.composite import decode_composite
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.frame import SASL_FRAME, ProtocolHeader, encode_frame
from bridge.wire.amqp10.performatives import (
    Begin,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"

CLIENT_LIMITS: Final = Limits(
    frame_bytes_max=1_048_576,
    channel_max=65_535,
    handle_max=0xFFFFFFFF,
    incoming_window=65_536,
    outgoing_window=65_536,
    idle_time_out_ms=60_000,
)
"""What azure-servicebus for Python says in its `open` and `begin`; the time-out is JavaScript's."""

_WRONG_CREDENTIALS: Final = 1


class ClientEndpoint(AmqpEndpoint):
    """One connection to a server.

    Args:
        hostname: the server's name, without a port.
        mechanism: `ANONYMOUS` or `PLAIN`.
        response: what the mechanism says at once.
        properties: the properties of our `open`.
    """

    def __init__(
        self,
        *,
        container_id: str,
        hostname: str,
        mechanism: str,
        response: bytes,
        properties: dict[Any, Any],
        limits: Limits,
        now_ms: int,
    ) -> None:
        super().__init__(
            container_id=container_id, mechanisms=(mechanism,), limits=limits, now_ms=now_ms
        )
        self.is_authenticated = True
        self._hostname = hostname
        self._mechanism = mechanism
        self._response = response
        self._properties = properties
        self._begun: dict[int, ClientSession] = {}
        self.write(ProtocolHeader.SASL.value)

    # -- protocol headers and SASL

    def _on_header(self, header: bytes) -> None:
        if self.state is ConnectionState.EXPECT_HEADER and header == ProtocolHeader.SASL.value:
            self.state = ConnectionState.EXPECT_MECHANISMS
        elif (
            self.state is ConnectionState.EXPECT_AMQP_HEADER and header == ProtocolHeader.AMQP.value
        ):
            self._reader.frame_bytes_max = self.limits.frame_bytes_max
            self.state = ConnectionState.EXPECT_OPEN
        else:
            text = f"The server speaks no AMQP 1.0 here, or another version: it began {header!r}."
            self._finish(make_error(FRAMING_ERROR, text), is_fault=True)

    def _on_sasl_frame(self, frame_type: int, data: bytes, at: int, end: int) -> None:
        try:
            found, at = decode_composite(data, at)
        except DecodeError:
            found = None
        if frame_type == SASL_FRAME and at <= end:
            if self.state is ConnectionState.EXPECT_MECHANISMS and isinstance(
                found, SaslMechanisms
            ):
                self._choose(found)
                return
            if self.state is ConnectionState.EXPECT_OUTCOME and isinstance(found, SaslOutcome):
                self._on_outcome(found)
                return
        self._finish(make_error(FRAMING_ERROR, "The server broke off the login."), is_fault=True)

    def _choose(self, offered: SaslMechanisms) -> None:
        if self._mechanism not in offered.sasl_server_mechanisms:
            text = (
                f"The server takes no login by {self._mechanism}, but by "
                f"{', '.join(offered.sasl_server_mechanisms)}."
            )
            self._finish(make_error(UNAUTHORIZED_ACCESS, text), is_fault=True)
            return
        init = SaslInit(self._mechanism, self._response, self._hostname)
        self.write(encode_frame(0, init, frame_type=SASL_FRAME))
        self.state = ConnectionState.EXPECT_OUTCOME

    def _on_outcome(self, outcome: SaslOutcome) -> None:
        if outcome.code == 0:
            self.state = ConnectionState.EXPECT_AMQP_HEADER
            self.write(ProtocolHeader.AMQP.value)
            self._write_open()
            return
        is_wrong = outcome.code == _WRONG_CREDENTIALS
        condition = UNAUTHORIZED_ACCESS if is_wrong else INTERNAL_ERROR
        text = f"The server refused the login by {self._mechanism} (SASL outcome {outcome.code})."
        self._finish(make_error(condition, text), is_fault=True)

    def _our_open(self) -> Open:
        return replace(super()._our_open(), hostname=self._hostname, properties=self._properties)

    # -- sessions

    def begin(self) -> ClientSession:
        """Begin a session; links may be attached at once.

        Raises:
            ConnectionFault: the connection is not open, or has no channel left.
        """
        if self.state is not ConnectionState.OPEN or self.peer is None:
            raise ConnectionFault(ILLEGAL_STATE, "The connection is not open.")
        used = {*self._begun, *(each.channel for each in self.sessions.values())}
        channel = 0
        while channel in used:
            channel += 1
        if channel > min(self.limits.channel_max, self.peer.channel_max):
            raise ConnectionFault(RESOURCE_LIMIT_EXCEEDED, "The connection has no channel left.")
        session = self._begun[channel] = ClientSession(self, channel)
        session.write_begin(None)
        return session

    def _on_begin(self, channel: int, begin: Begin) -> None:
        if channel in self.sessions:
            raise ConnectionFault(ILLEGAL_STATE, f"Channel {channel} has a session already.")
        if begin.remote_channel is None or begin.remote_channel not in self._begun:
            text = "The server has begun a session that nobody has asked for."
            raise ConnectionFault(INVALID_FIELD, text)
        session = self._begun.pop(begin.remote_channel)
        self._ended_channels.discard(channel)
        self.sessions[channel] = session
        session.take_begin(begin)

    def end_links(self) -> list[Event]:
        """Forget all links before `close`, and return their events: `close` tells nothing."""
        self._end_sessions()
        return self._take_events()

    def _end_sessions(self) -> None:
        begun, self._begun = list(self._begun.values()), {}
        for session in begun:
            session.close_links()
        super()._end_sessions()
