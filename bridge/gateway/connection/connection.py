"""An AMQP 1.0 client connection: bytes to events, events to links, one write a loop turn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import cast

from bridge.gateway.client import texts
from bridge.gateway.client.admission import ConnectionEnd, Visit
from bridge.gateway.client.backlog import UnconfirmedBytes
from bridge.gateway.client.client import SessionHolder, Starved
from bridge.gateway.client.client_log import ClientLog
from bridge.gateway.client.connection_transactions import ConnectionTransactions
from bridge.gateway.client.connections import Connections
from bridge.gateway.client.links import Links
from bridge.gateway.client.reply_links import ReplyLinks
from bridge.gateway.client.settings import MECHANISMS
from bridge.gateway.client.work import Work
from bridge.gateway.connection.authentication import Authentication
from bridge.gateway.connection.link_events import LinkEvents
from bridge.gateway.connection.reader import ConnectionReader
from bridge.machine.amqp10.endpoint import AmqpEndpoint, ConnectionState
from bridge.machine.amqp10.events import Closed, Event, Opened, OperationMissed, SaslChosen
from bridge.machine.amqp10.faults import (
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    RESOURCE_LIMIT_EXCEEDED,
)
from bridge.machine.amqp10.known_requests import KnownRequests
from bridge.model.errors import NotAllowed, ServiceBusError
from bridge.socket_writer import SocketWriter
from bridge.topology.shards import SessionKey
from bridge.wire.mapping.common_values import ALL, GO, PYTHON, Form

_log = logging.getLogger("busbridge.gateway")

_PYTHON = "azsdk-python"
_GO = "MSGolangClient"

WRITE_BYTES = 2_048
"""Output that is written before the end of the loop's turn; the size then doubles with each such
write. A client reads the first of many messages while the bridge still prepares the others."""

WRITE_BYTES_MAX = 32_768

LINGER_S = 1.0
"""How long a closed connection waits for its peer to read the close before it is torn down."""

ABANDON_S = 10.0
"""How long a finished connection may take to write the last of its output."""

SLICE_BYTES = 4_096
"""Input that is parsed into frames before the clock is read again."""


class ClientConnection(ConnectionReader):
    """One client's AMQP connection.

    `Client` says what it is for its links, `OpenConnection` for the gateway.

    Attributes:
        authentication: the client's login and tokens.
    """

    def __init__(self, connections: Connections, visit: Visit) -> None:
        super().__init__(connections, visit)
        self.namespace = connections.namespace
        self.access = connections.access
        self.settings = settings = connections.settings
        self._has_unfinished = False
        self.reply_links = ReplyLinks()
        self.known_requests = KnownRequests()
        self.sessions: dict[tuple[str, SessionKey], SessionHolder] = {}
        self.starved: dict[Starved, None] = {}
        self.is_leaving = False
        self.transactions: ConnectionTransactions | None = None
        self.transacted = connections.backlog.transacted
        self.log = ClientLog(self._timers)
        self.work = Work(self._loop, self._on_failed)
        self._endpoint = AmqpEndpoint(
            container_id=settings.container_id,
            mechanisms=MECHANISMS,
            limits=settings.limits,
            now_ms=_ms(self._loop),
            native_text=texts.native_client(settings.rabbitmq_ports),
        )
        self.authentication = Authentication(self, connections, self._endpoint, self._timers, visit)
        self.grants = self.authentication.grants
        self.next_turn = self.authentication.next_turn
        self.put_claims = self.authentication.put_claims
        self.note_refused = self.authentication.note_refused
        self._writer: SocketWriter | None = None
        self.links = Links(self, connections.endings)
        self._on_event = LinkEvents(self, self._on_own_event).on_event
        self.unconfirmed = UnconfirmedBytes(
            connections.backlog,
            settings.input_bytes_high,
            partial(self._loop.call_soon, self._go_on),
        )
        self._is_over = False
        self._is_stopping = False
        self._is_writing_paused = False
        self._is_flush_due = False
        self._write_bytes = WRITE_BYTES

    @property
    def is_python_sdk(self) -> bool:
        return self._product.startswith(_PYTHON)

    @property
    def form(self) -> Form:
        if self.is_python_sdk:
            return PYTHON
        return GO if self._product == _GO else ALL

    @property
    def _product(self) -> str:
        opened = self._endpoint.peer
        product = (opened.properties or {}).get("product") if opened is not None else None
        return product if isinstance(product, str) else ""

    def __repr__(self) -> str:
        return f"<ClientConnection {self.log.peer} {self._endpoint!r} links={len(self.links)}>"

    # -- what links need

    @property
    def is_choked(self) -> bool:
        high = self.settings.output_bytes_high
        return self._is_writing_paused or self._endpoint.output_bytes > high

    @property
    def is_lost(self) -> bool:
        return self._transport is None

    def resource_of(self, path: str) -> str:
        peer = self._endpoint.peer
        return f"sb://{(peer.hostname if peer else None) or 'localhost'}/{path}"

    def describe(self, error: ServiceBusError, entity: str) -> tuple[str, str]:
        name = self.settings.namespace_name
        return error.condition, texts.tracked(str(error), name, entity)

    def _on_tick(self) -> None:
        now_ms = _ms(self._loop)
        if self._is_reading_paused:
            self._endpoint.heard(now_ms)
        for event in self._endpoint.tick(now_ms):
            self._on_event(event)
        since_ms = self._endpoint.unfinished_since_ms
        if since_ms is not None and not self._is_reading_paused:
            seconds = self.settings.unfinished_s
            if now_ms - since_ms > 1000 * seconds:
                text = texts.UNFINISHED.format(seconds=seconds)
                self.end(ConnectionEnd.UNFINISHED, RESOURCE_LIMIT_EXCEEDED, text)
        self.flush()
        if self._endpoint.state is not ConnectionState.FINISHED:
            self._arm_tick()

    def _arm_tick(self) -> None:
        delay_ms = max(self._endpoint.deadline_ms - _ms(self._loop), 50)
        self._timers.set("tick", delay_ms / 1000, self._on_tick)

    # -- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve a connected client."""
        self._transport = cast(asyncio.Transport, transport)
        if self._connections.is_stopping:
            self._transport.abort()
            return
        self._writer = SocketWriter(self._transport)
        host = self._transport.get_extra_info("peername")
        self.log.peer = f"{host[0]}:{host[1]}" if host else "?"
        self._transport.set_write_buffer_limits(high=self.settings.output_bytes_high)
        self._connections.add(self)
        self.authentication.await_proof()
        self._arm_tick()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release all resources of a client that is gone."""
        for event in self._endpoint.lost():
            self._on_event(event)
        self._roll_back()
        self.log.end_minute()
        self._timers.cancel_all()
        self._transport = self._writer = None
        self._forget_input()
        self.unconfirmed.end()
        self._connections.backlog.forget(self)
        self._visit.leave()
        self._connections.remove(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes, and process them now or in this connection's turn."""
        if self._endpoint.state is not ConnectionState.FINISHED:
            super().data_received(data)

    def advance(self, now_s: float, until_s: float) -> bool:
        """Process input until a time of the loop's clock, then write once.

        Returns whether no input is left that may be processed.
        """
        endpoint = self._endpoint
        now_ms = int(now_s * 1000)
        self._is_flush_due = True  # at the end of this method
        try:
            while self._input_at < len(self._input) and not self._is_held:
                at, end = self._input_at, len(self._input)
                if end - at > SLICE_BYTES:
                    end = at + max(SLICE_BYTES, endpoint.missing_bytes)
                self._input_at = end
                for event in endpoint.receive(self._input[at:end], now_ms):
                    self._on_event(event)
                if end >= len(self._input) or self._loop.time() >= until_s:
                    break
        except Exception:
            self.log.exception("connection.failed")
            self._forget_links()  # or the links would go on taking messages for nobody
            self._is_over = True
            endpoint.close(INTERNAL_ERROR, texts.FAILED_CONNECTION)
            self._timers.set("linger", LINGER_S, self.abort)
        if endpoint.state is ConnectionState.FINISHED:
            self._forget_input()
        unfinished_bytes = endpoint.unfinished_bytes
        if unfinished_bytes or self._has_unfinished:
            self._has_unfinished = unfinished_bytes > 0
            self._connections.backlog.note_unfinished(self, unfinished_bytes)
        if self.starved:
            self._feed_starved()
        if not self.work.tasks:  # what the tasks are about to publish comes before the flush
            self.namespace.flush()
        self.flush()
        return self._end_advance()

    @property
    def _is_held(self) -> bool:
        if self._is_over:
            return False  # input is read to its end and ignored
        return self._is_stopping or self.unconfirmed.is_held or self._is_writing_paused

    def eof_received(self) -> bool:
        """Let answers under way be written after the client's end of input, for a limited time."""
        self._timers.set("abandon", ABANDON_S, self.abort)
        return False

    def pause_writing(self) -> None:
        """Stop receiving for and reading from a client that does not read."""
        self._is_writing_paused = True
        self._timers.set("unread", self.settings.unread_s, self.end_unread)
        self._connections.backlog.note_unread(self)
        self._pace()

    def end_unread(self) -> None:
        self._connections.note_ended(self, ConnectionEnd.UNREAD)
        self._connections.backlog.note_read(self)
        self.abort()

    def resume_writing(self) -> None:
        """Resume receiving for and reading from a client that reads again."""
        self._is_writing_paused = False
        self._timers.cancel("unread")
        self._connections.backlog.note_read(self)
        self._feed_starved()
        self.flush_soon()
        self._go_on()

    def _feed_starved(self) -> None:
        starved, self.starved = self.starved, {}
        for link in starved:
            link.pull()

    @property
    def unfinished_since_ms(self) -> int | None:
        return self._endpoint.unfinished_since_ms

    def flush_soon(self) -> None:
        if self._endpoint.output_bytes > self._write_bytes:
            self._write_bytes = min(2 * self._write_bytes, WRITE_BYTES_MAX)
            self.flush()
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._write_bytes = WRITE_BYTES
        if self._is_flush_due:
            self.flush()

    def flush(self) -> None:
        self._is_flush_due = False
        transport = self._transport
        output = self._endpoint.take_output()
        if transport is None or self._writer is None:
            return
        if output:
            self._writer.write(output)
            if self.starved and not self._is_writing_paused:
                self._loop.call_soon(self._feed_starved)
        if self._endpoint.state is ConnectionState.FINISHED and not transport.is_closing():
            self._tear_down(transport)

    def _tear_down(self, transport: asyncio.Transport) -> None:
        """Close the transport after the last bytes, without a reset.

        A socket that is closed with unread input is reset, and the close frame is lost.
        """
        self._is_over = True
        self.log.end_minute()
        self._timers.cancel_all()
        self._timers.set("abandon", ABANDON_S, transport.abort)
        self._pace()
        if transport.get_extra_info("ssl_object") is None and transport.can_write_eof():
            # An OSError: the peer has reset the connection.
            with contextlib.suppress(OSError):
                transport.write_eof()
            self._timers.set("linger", LINGER_S, transport.close)
        else:
            transport.close()

    def _on_failed(self, error: Exception) -> None:
        self.log.failed(error)
        self.close(INTERNAL_ERROR, texts.FAILED_CONNECTION)

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Close the connection, with an error or without."""
        self._forget_links()
        self._is_over = True
        self._endpoint.close(condition, description)
        self.flush()
        self._go_on()
        if self._transport is not None:
            self._timers.set("linger", LINGER_S, self._transport.abort)

    def _forget_links(self) -> None:
        self.links.forget_all()
        self._roll_back()

    def _roll_back(self) -> None:
        if self.transactions is not None:
            self.transactions.close()

    def end(self, reason: ConnectionEnd, condition: str, description: str) -> None:
        if not self._is_over:
            self._connections.note_ended(self, reason)
            self.close(condition, description)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def stop(self) -> None:
        self._is_stopping = True
        self._pace()
        self.links.stop()
        self.work.stop()

    def say_goodbye(self) -> None:
        # From then on the client's input is read and ignored: a socket that is closed with unread
        # input is reset, and the last answers are lost.
        self.close(CONNECTION_FORCED, texts.STOPPING)

    # -- events

    def _on_own_event(self, event: Event) -> None:
        """Handle an event that belongs to no link."""
        match event:
            case SaslChosen():
                self.authentication.on_sasl(event)
            case Opened():
                self.log.info("connection.opened", container=event.open.container_id)
                self._arm_tick()
            case Closed():
                if event.is_fault and not self._is_over:
                    self.authentication.note_fault()
                self.log.info("connection.closed", error=event.error)
            case OperationMissed():
                if self.transactions is not None:
                    self.transactions.doom(event.txn_id, NotAllowed(event.reason))


def _ms(loop: asyncio.AbstractEventLoop) -> int:
    return int(loop.time() * 1000)
