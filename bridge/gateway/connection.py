"""One client's connection: bytes to events, events to the links, and one write a loop turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from bridge.broker.outlet import Outlet
from bridge.gateway import attaching, texts
from bridge.gateway.grants import Grants
from bridge.gateway.nodes import ReplyLink, RequestLink
from bridge.gateway.receiving import ReceivingLink
from bridge.gateway.sending import SendingLink
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
from bridge.machine.amqp10.faults import CONNECTION_FORCED
from bridge.machine.amqp10.link import OutgoingLink
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


class Connection(asyncio.Protocol):
    """One client's connection.

    Attributes:
        grants: what the client may do.
        reply_links: the links on which it takes replies of `$cbs` and `$management`.
        starved: receiving links that wait for the client to read.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.grants = Grants(gateway.now_s, self.resource_of)
        self.reply_links: dict[OutgoingLink, ReplyLink] = {}
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
        self._links: dict[SendingLink | ReceivingLink, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers = Timers(self._loop)
        self._input_bytes = 0
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
        """Log one fact about the client."""
        _log.info("%s peer=%s %s", event, self.peer, _text(fields))

    def log_exception(self, event: str, **fields: Any) -> None:
        """Log a fault of our own with its traceback."""
        _log.exception("%s peer=%s %s", event, self.peer, _text(fields))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that takes time; it ends by itself or with the gateway."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
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
            if link.link.is_open and not self.grants.allows(link.right, link.path):
                text = texts.TOKEN_EXPIRED.format(resource=self.resource_of(str(link.path)))
                name = self.gateway.settings.namespace_name
                link.link.detach(Unauthorized.condition, texts.tracked(text, name, str(link.path)))
                self.log("link.expired", entity=str(link.path))
                self._forget(link)
        self._watch_expiry()
        self.flush()

    def recheck(self) -> None:
        """The entities have changed: end the links that they do not allow any more."""
        for link in list(self._links):
            error = link.refusal() if link.link.is_open else None
            if error is not None:
                link.link.detach(*self.describe(error, str(link.path)))
                self.log("link.ended", entity=str(link.path), reason=str(error))
                self._forget(link)
        self.flush()

    def _on_unauthorized(self) -> None:
        self.close(
            Unauthorized.condition,
            texts.UNAUTHORIZED_CONNECTION.format(seconds=self.gateway.settings.authorization_s),
        )

    def _on_tick(self) -> None:
        now_ms = self._monotonic_ms()
        if self._is_reading_paused:
            self._endpoint.heard(now_ms)
        for event in self._endpoint.tick(now_ms):
            self._on_event(event)
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
        self._timers.set(
            "authorization", self.gateway.settings.authorization_s, self._on_unauthorized
        )
        self._arm_tick()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        for event in self._endpoint.lost():
            self._on_event(event)
        self._timers.cancel_all()
        self._transport = self._outlet = None
        self.gateway.remove(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came: act on all they mean, then write once."""
        try:
            for event in self._endpoint.receive(data, self._monotonic_ms()):
                self._on_event(event)
        except Exception:
            self.log_exception("connection.failed")
            self._endpoint.close("amqp:internal-error", "The bridge failed; connect again.")
        if self.starved:
            self._feed_starved()
        if not self._tasks:  # what they are about to do comes before what is flushed
            self.gateway.namespace.flush()
        self.flush()

    def eof_received(self) -> bool:
        """The client has said all; what it asked for may still be answered to nobody."""
        return False

    def pause_writing(self) -> None:
        """The client does not read: nothing more is taken for it."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_writing_paused = False
        self._feed_starved()
        self.flush_soon()

    def _feed_starved(self) -> None:
        starved, self.starved = self.starved, {}
        for link in starved:
            link.pull()

    def input_bytes(self, change: int) -> None:
        """Count the bytes that wait for RabbitMQ; too many, and the client is not read from."""
        self._input_bytes += change
        transport = self._transport
        if transport is None or transport.is_closing() or self._is_stopping:
            return
        high = self.gateway.settings.input_bytes_high
        if not self._is_reading_paused and self._input_bytes > high:
            self._is_reading_paused = True
            transport.pause_reading()
        elif self._is_reading_paused and self._input_bytes < high // 2:
            self._is_reading_paused = False
            transport.resume_reading()

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
        self._timers.cancel_all()
        if transport.get_extra_info("ssl_object") is None and transport.can_write_eof():
            transport.write_eof()
            self._timers.set("linger", LINGER_S, transport.close)
        else:
            transport.close()

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Close the connection with an error, or as a matter of course."""
        for link in list(self._links):
            self._forget(link)
        self._endpoint.close(condition, description)
        self.flush()
        if self._transport is not None:
            self._timers.set("linger", LINGER_S, self._transport.abort)

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def stop(self) -> None:
        """Take nothing more of the client and for it; what is under way goes on."""
        self._is_stopping = True
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self._is_reading_paused:
            transport.pause_reading()
        for link in list(self._links):
            if isinstance(link, ReceivingLink):
                self._forget(link)
        self._note_answered()

    def say_goodbye(self) -> None:
        """Close because the bridge stops: SDKs connect again by themselves.

        From then on the client is read again, and what it says passed over: a socket that is closed
        with unread input is reset, and our answers with it.
        """
        self.close(CONNECTION_FORCED, texts.STOPPING)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

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
                if isinstance(event.link.owner, ReceivingLink):
                    event.link.owner.on_outcome(event)
            case CreditChanged():
                if isinstance(event.link.owner, ReceivingLink | ReplyLink):
                    event.link.owner.on_credit(event)
            case LinkAttached():
                attaching.attach(self, event.link)
                if isinstance(event.link.owner, SendingLink | ReceivingLink):
                    self._links[event.link.owner] = None
            case LinkDetached():
                if event.link.owner is not None:
                    self._forget(event.link.owner)
            case SaslChosen():
                self._on_sasl(event)
            case Opened():
                self.log("connection.opened", container=event.open.container_id)
                self._arm_tick()
            case Closed():
                self.log("connection.closed", error=event.error)

    def _forget(self, owner: SendingLink | ReceivingLink | ReplyLink | RequestLink) -> None:
        if isinstance(owner, SendingLink | ReceivingLink):
            if owner not in self._links:
                return
            del self._links[owner]
        owner.on_detached()

    def _on_sasl(self, event: SaslChosen) -> None:
        is_ok = event.mechanism in MECHANISMS
        if event.mechanism == "PLAIN":
            is_ok = self._is_plain_proven(event.response)
        self._endpoint.sasl_outcome(is_ok=is_ok)

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
