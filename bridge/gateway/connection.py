"""One client's connection: bytes to events, events to the links, and one write a loop turn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from bridge.broker.connection.outlet import Outlet
from bridge.gateway import attaching, texts
from bridge.gateway.admission import Ended, Visit
from bridge.gateway.grants import Grants
from bridge.gateway.nodes import ReplyLink, ReplyLinks, RequestLink
from bridge.gateway.receiving import ReceivingLink
from bridge.gateway.sending import SendingLink
from bridge.gateway.sessions import SessionLink
from bridge.gateway.settings import MECHANISMS
from bridge.gateway.timers import Timers
from bridge.machine.amqp10.endpoint import Endpoint
from bridge.machine.amqp10.events import (
    Closed,
    CreditChanged,
    Event,
    LinkAttached,
    LinkDetached,
    MessageArrived,
    MessageRefused,
    Opened,
    OutcomeArrived,
    SaslChosen,
)
from bridge.machine.amqp10.faults import CONNECTION_FORCED, RESOURCE_LIMIT_EXCEEDED
from bridge.model.access import Claims, verify_key
from bridge.model.errors import ServiceBusError, Unauthorized

if TYPE_CHECKING:
    from bridge.gateway.server import Gateway

_log = logging.getLogger("busbridge.gateway")

WRITE_BYTES = 2_048
"""So much is written without waiting for the end of the loop's turn, then twice as much, and so on:
a client reads the first messages of many while the others are still being made ready."""

WRITE_BYTES_MAX = 32_768

LINGER_S = 1.0
"""How long a closed connection waits for its peer to read the close before it is torn down."""

ABANDON_S = 10.0
"""How long a connection that is over may take to hand out the last of its output."""

SLICE_BYTES = 4_096
"""So much is read into frames before the clock is looked at."""

LINES_MAX = 100
"""Facts that are logged of one client within a minute; what is above is counted."""


class Connection(asyncio.Protocol):
    """One client's connection.

    Attributes:
        grants: what the client may do.
        reply_links: the links on which it takes replies of `$cbs` and `$management`.
        sessions: the sessions that it holds, by their entities' keys and their ids.
        starved: receiving links that wait for the client to read.
    """

    def __init__(self, gateway: Gateway, visit: Visit | None = None) -> None:
        self.gateway = gateway
        self._visit = visit
        self._turns = gateway.turns_of_strangers
        self._input = b""
        self._input_at = 0
        self._is_queued = False
        self._has_unfinished = False
        self._lines = 0
        self.grants = Grants(gateway.now_s, self.resource_of)
        self.reply_links = ReplyLinks()
        self.sessions: dict[tuple[str, str], SessionLink] = {}
        self.starved: dict[ReceivingLink, None] = {}
        self.peer = "?"
        self._loop = asyncio.get_running_loop()
        self._endpoint = Endpoint(
            container_id=gateway.settings.container_id,
            mechanisms=MECHANISMS,
            limits=gateway.settings.limits,
            now_ms=self._monotonic_ms(),
        )
        self._transport: asyncio.Transport | None = None
        self._outlet: Outlet | None = None
        self._links: dict[SendingLink | ReceivingLink | SessionLink, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers = Timers(self._loop)
        self._waiting_bytes = 0
        self._is_waiting = False
        self._is_over = False
        self._is_reading_paused = False
        self._is_stopping = False
        self._completions = 0
        self._is_answered = asyncio.Event()
        self._is_writing_paused = False
        self._is_flush_due = False
        self._write_bytes = WRITE_BYTES

    def __repr__(self) -> str:
        return f"<Connection {self.peer} {self._endpoint!r} links={len(self._links)}>"

    # -- what links need

    @property
    def is_choked(self) -> bool:
        """Whether the client has not read, or not been sent, what was taken for it already."""
        high = self.gateway.settings.output_bytes_high
        return self._is_writing_paused or self._endpoint.output_bytes > high

    def now_s(self) -> float:
        """The wall clock."""
        return self.gateway.now_s()

    def resource_of(self, path: str) -> str:
        """Return an entity as Azure's texts name it, `sb://host/entity`."""
        peer = self._endpoint.peer
        return f"sb://{(peer.hostname if peer else None) or 'localhost'}/{path}"

    def describe(self, error: ServiceBusError, entity: str) -> tuple[str, str]:
        """Return condition and description of an error as the client gets them."""
        return texts.describe(error, self.gateway.settings.namespace_name, entity)

    def log(self, event: str, **fields: Any) -> None:
        """Log one fact about the client; of many a minute, the first."""
        if not self._lines:
            self._timers.set("lines", 60.0, self._on_minute)
        self._lines += 1
        if self._lines <= LINES_MAX:
            _log.info("%s peer=%s %s", event, self.peer, _text(fields))

    def _on_minute(self) -> None:
        if self._lines > LINES_MAX:
            _log.info("connection.silenced peer=%s lines=%d", self.peer, self._lines - LINES_MAX)
        self._lines = 0

    def log_exception(self, event: str, **fields: Any) -> None:
        """Log a fault of our own with its traceback."""
        _log.exception("%s peer=%s %s", event, self.peer, _text(fields))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that takes time; it ends by itself or with the gateway."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._is_stopping:
            self._note_answered()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task.failed peer=%s", self.peer, exc_info=error)
            self.close("amqp:internal-error", "The bridge failed; connect again.")

    def completing(self, change: int) -> None:
        """Count the completions that are under way."""
        self._completions += change
        self._note_answered()

    def _note_answered(self) -> None:
        if self._is_stopping and not self._tasks and not self._completions:
            self._is_answered.set()

    def answered(self) -> Awaitable[object]:
        """Wait until nothing is under way for a client of which nothing more is taken."""
        return self._is_answered.wait()

    def put_claims(self, audience: str, claims: Claims) -> None:
        """Add the claims of a token.

        Raises:
            Unauthorized: the connection holds too many already.
        """
        if not self.grants.put(audience, claims):
            raise Unauthorized("The connection holds too many tokens.")
        self._endpoint.authenticated()
        self._turns = self.gateway.turns
        if self._visit is not None:
            self._visit.known()
        self._timers.cancel("authorization")
        self._watch_expiry()

    # -- time

    def _monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _watch_expiry(self) -> None:
        expiry_s = self.grants.next_expiry_s
        if expiry_s is not None:
            # a day at most: the wall clock may be set in between
            delay_s = min(max(expiry_s - self.now_s(), 0.0), 86_400.0)
            self._timers.set("expiry", delay_s, self._on_expiry)

    def _on_expiry(self) -> None:
        self.grants.drop_expired()
        for link in list(self._links):
            if link.link.is_alive and not self.grants.allows(link.right, link.path):
                text = texts.TOKEN_EXPIRED.format(resource=self.resource_of(str(link.path)))
                name = self.gateway.settings.namespace_name
                link.link.detach(Unauthorized.condition, texts.tracked(text, name, str(link.path)))
                self.log("link.expired", entity=str(link.path))
                self.forget(link)
        self._watch_expiry()
        self.flush()

    def recheck(self) -> None:
        """The entities have changed: end the links that they do not allow any more."""
        for link in list(self._links):
            error = link.refusal() if link.link.is_alive else None
            if error is not None:
                link.link.detach(*self.describe(error, str(link.path)))
                self.log("link.ended", entity=str(link.path), reason=str(error))
                self.forget(link)
        self.flush()

    def _on_unauthorized(self) -> None:
        seconds = self.gateway.settings.authorization_s
        text = texts.UNAUTHORIZED_CONNECTION.format(seconds=seconds)
        self.end(Ended.UNAUTHENTICATED, Unauthorized.condition, text)

    def _on_tick(self) -> None:
        now_ms = self._monotonic_ms()
        if self._is_reading_paused:
            self._endpoint.heard(now_ms)
        for event in self._endpoint.tick(now_ms):
            self._on_event(event)
        since_ms = self._endpoint.unfinished_since_ms
        if since_ms is not None and not self._is_reading_paused:
            seconds = self.gateway.settings.unfinished_s
            if now_ms - since_ms > 1000 * seconds:
                text = texts.UNFINISHED.format(seconds=seconds)
                self.end(Ended.UNFINISHED, RESOURCE_LIMIT_EXCEEDED, text)
        self.flush()
        if not self._endpoint.is_finished:
            self._arm_tick()

    def _arm_tick(self) -> None:
        delay_ms = max(self._endpoint.deadline_ms - self._monotonic_ms(), 50)
        self._timers.set("tick", delay_ms / 1000, self._on_tick)

    # -- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)
        if self.gateway.is_stopping:
            self._transport.abort()
            return
        self._outlet = Outlet(self._transport)
        host = self._transport.get_extra_info("peername")
        self.peer = f"{host[0]}:{host[1]}" if host else "?"
        self._transport.set_write_buffer_limits(high=self.gateway.settings.output_bytes_high)
        self.gateway.add(self)
        left_s = self.gateway.settings.authorization_s
        if self._visit is not None:
            left_s = self._visit.left_s(left_s)
        self._timers.set("authorization", left_s, self._on_unauthorized)
        self._arm_tick()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        for event in self._endpoint.lost():
            self._on_event(event)
        self._on_minute()
        self._timers.cancel_all()
        self._transport = self._outlet = None
        self._input, self._input_at = b"", 0
        self.gateway.backlog.forget(self)
        if self._visit is not None:
            self._visit.leave()
        self.gateway.remove(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came: act on them, now or when it is this connection's turn."""
        if self._endpoint.is_finished:
            return
        if self._input_at < len(self._input):
            data = self._input[self._input_at :] + data
        self._input, self._input_at = data, 0
        self._go_on()

    def _go_on(self) -> None:
        """Act on what came, as soon as others leave time for it."""
        if self._is_queued or self._input_at >= len(self._input) or self._is_held:
            self._pace()
            return
        self._is_queued = not self._turns.take(self)
        self._pace()

    def advance(self, now_s: float, until_s: float) -> bool:
        """Act on what came until a time of the loop's clock, then write once.

        Returns whether nothing is left that could be acted on.
        """
        endpoint = self._endpoint
        now_ms = int(now_s * 1000)
        try:
            while self._input_at < len(self._input) and not self._is_held:
                at = self._input_at
                end = at + max(SLICE_BYTES, endpoint.missing_bytes)
                self._input_at = end
                for event in endpoint.receive(self._input[at:end], now_ms):
                    self._on_event(event)
                if end >= len(self._input) or self._loop.time() >= until_s:
                    break
        except Exception:
            self.log_exception("connection.failed")
            endpoint.close("amqp:internal-error", "The bridge failed; connect again.")
        is_done = True
        if self._input_at >= len(self._input) or endpoint.is_finished:
            self._input, self._input_at = b"", 0
        else:
            is_done = self._is_held
        unfinished_bytes = endpoint.unfinished_bytes
        if unfinished_bytes or self._has_unfinished:
            self._has_unfinished = unfinished_bytes > 0
            self.gateway.backlog.note_unfinished(self, unfinished_bytes)
        if self.starved:
            self._feed_starved()
        if not self._tasks:  # what they are about to do comes before what is flushed
            self.gateway.namespace.flush()
        self.flush()
        if is_done and self._is_queued:
            self._is_queued = False
            self._pace()
        return is_done

    @property
    def _is_held(self) -> bool:
        """Whether nothing more is taken from the client for now."""
        if self._is_over:
            return False  # it is read to its end, and what it says passed over
        return self._is_stopping or self._is_waiting or self._is_writing_paused

    def _pace(self) -> None:
        """Read from the client, or do not: while something is left, or it is held."""
        is_paused = self._input_at < len(self._input) or self._is_held
        transport = self._transport
        if is_paused == self._is_reading_paused or transport is None or transport.is_closing():
            return
        self._is_reading_paused = is_paused
        if is_paused:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def eof_received(self) -> bool:
        """The client has said all; what it asked for may still be answered to nobody."""
        self._timers.set("abandon", ABANDON_S, self.abort)
        return False

    def pause_writing(self) -> None:
        """The client does not read: nothing more is taken for it, nor from it."""
        self._is_writing_paused = True
        self._timers.set("unread", self.gateway.settings.unread_s, self.end_unread)
        self.gateway.backlog.note_unread(self)
        self._pace()

    def end_unread(self) -> None:
        """End a connection whose client does not read."""
        self.gateway.note_ended(self, Ended.UNREAD)
        self.gateway.backlog.note_read(self)
        self.abort()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_writing_paused = False
        self._timers.cancel("unread")
        self.gateway.backlog.note_read(self)
        self._feed_starved()
        self.flush_soon()
        self._go_on()

    def _feed_starved(self) -> None:
        starved, self.starved = self.starved, {}
        for link in starved:
            link.pull()

    def input_bytes(self, change: int) -> None:
        """Count the bytes that wait for RabbitMQ; too many, and the client is not read from."""
        self._waiting_bytes += change
        backlog = self.gateway.backlog
        backlog.waiting_bytes += change
        high = self.gateway.settings.input_bytes_high
        if change > 0:
            is_much = self._waiting_bytes > high or backlog.is_full
            if is_much and not self._is_waiting and self._transport is not None:
                self._is_waiting = True
                backlog.hold(self)
        elif self._waiting_bytes < high // 2 and not (backlog.is_full and self._waiting_bytes):
            self.release()
        backlog.release()

    def release(self) -> None:
        """RabbitMQ has taken enough: the client is read again."""
        if self._is_waiting:
            self._is_waiting = False
            self.gateway.backlog.let_go(self)
            self._loop.call_soon(self._go_on)

    @property
    def waits_for_others(self) -> bool:
        """Whether it is held for what others have sent."""
        return self._waiting_bytes < self.gateway.settings.input_bytes_high // 2

    @property
    def unfinished_since_ms(self) -> int | None:
        """Since when it has owed the rest of a frame or a message; `None` if it does not."""
        return self._endpoint.unfinished_since_ms

    def flush_soon(self) -> None:
        """Write what there is at the end of the loop's turn; much of it, at once."""
        if self._endpoint.output_bytes > self._write_bytes:
            self._write_bytes = min(2 * self._write_bytes, WRITE_BYTES_MAX)
            self.flush()
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_flush_due = False
        self._write_bytes = WRITE_BYTES
        self.flush()

    def flush(self) -> None:
        """Write what there is."""
        transport = self._transport
        output = self._endpoint.take_output()
        if transport is None or self._outlet is None:
            return
        if output:
            self._outlet.write(output)
            if self.starved and not self._is_writing_paused:
                self._loop.call_soon(self._feed_starved)
        if self._endpoint.is_finished and not transport.is_closing():
            self._tear_down(transport)

    def _tear_down(self, transport: asyncio.Transport) -> None:
        """Close the transport so that the peer can still read our last bytes.

        A socket that is closed with unread input is reset, and the close frame with it.
        """
        self._is_over = True
        self._on_minute()
        self._timers.cancel_all()
        self._timers.set("abandon", ABANDON_S, transport.abort)
        self._pace()
        if transport.get_extra_info("ssl_object") is None and transport.can_write_eof():
            # Not connected any more: the peer has reset the connection.
            with contextlib.suppress(OSError):
                transport.write_eof()
            self._timers.set("linger", LINGER_S, transport.close)
        else:
            transport.close()

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Close the connection with an error, or as a matter of course."""
        for link in list(self._links):
            self.forget(link)
        self._is_over = True
        self._endpoint.close(condition, description)
        self.flush()
        self._go_on()
        if self._transport is not None:
            self._timers.set("linger", LINGER_S, self._transport.abort)

    def end(self, reason: Ended, condition: str, description: str) -> None:
        """Close the connection for a reason that is counted."""
        if not self._is_over:
            self.gateway.note_ended(self, reason)
            self.close(condition, description)

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def stop(self) -> None:
        """Take nothing more of the client and for it; what is under way goes on."""
        self._is_stopping = True
        self._pace()
        for link in list(self._links):
            if isinstance(link, ReceivingLink | SessionLink):
                self.forget(link)
        self._note_answered()

    def say_goodbye(self) -> None:
        """Close because the bridge stops: SDKs connect again by themselves.

        From then on the client is read again, and what it says passed over: a socket that is closed
        with unread input is reset, and our answers with it.
        """
        self.close(CONNECTION_FORCED, texts.STOPPING)

    # -- events

    def _on_event(self, event: Event) -> None:
        match event:
            case MessageArrived():
                owner = event.link.owner
                if isinstance(owner, SendingLink | RequestLink):
                    owner.on_message(event)
            case MessageRefused():
                if isinstance(event.link.owner, SendingLink | RequestLink):
                    event.link.owner.top_up()
            case OutcomeArrived():
                if isinstance(event.link.owner, ReceivingLink | SessionLink):
                    event.link.owner.on_outcome(event)
            case CreditChanged():
                if isinstance(event.link.owner, ReceivingLink | SessionLink | ReplyLink):
                    event.link.owner.on_credit(event)
            case LinkAttached():
                attaching.attach(self, event.link)
                if isinstance(event.link.owner, SendingLink | ReceivingLink | SessionLink):
                    self._links[event.link.owner] = None
            case LinkDetached():
                if event.link.owner is not None:
                    self.forget(event.link.owner)
            case SaslChosen():
                self._on_sasl(event)
            case Opened():
                self.log("connection.opened", container=event.open.container_id)
                self._arm_tick()
            case Closed():
                if event.is_fault and not self._is_over:
                    self._note_fault()
                self.log("connection.closed", error=event.error)

    def forget(
        self, owner: SendingLink | ReceivingLink | SessionLink | ReplyLink | RequestLink
    ) -> None:
        """A link is gone: what it holds is let go, once."""
        if isinstance(owner, SendingLink | ReceivingLink | SessionLink):
            if owner not in self._links:
                return
            del self._links[owner]
        owner.on_detached()

    def _on_sasl(self, event: SaslChosen) -> None:
        is_ok = event.mechanism in MECHANISMS
        if event.mechanism == "PLAIN":
            is_ok = self._is_plain_proven(event.response)
        if not is_ok:
            self._note_fault()
        self._endpoint.sasl_outcome(is_ok=is_ok)

    def _note_fault(self) -> None:
        is_known = self._endpoint.is_authenticated
        self.gateway.note_ended(self, Ended.FAULT if is_known else Ended.LOGIN)

    def _is_plain_proven(self, response: bytes) -> bool:
        """PLAIN (RFC 4616): authorization id, rule name, key, parted by NUL."""
        parts = response.decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            return False
        try:
            self.put_claims("", verify_key(parts[1], parts[2], self.gateway.rules))
        except Unauthorized as error:
            self.log("sasl.refused", rule=parts[1], reason=str(error))
            return False
        return True


def _text(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in fields.items())
