"""Request and reply links of the nodes `$cbs` and an entity's `$management`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.gateway import texts
from bridge.machine.amqp10.events import CreditChanged, MessageArrived
from bridge.machine.amqp10.faults import DECODE_ERROR, make_error
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.machine.amqp10.session import Session
from bridge.machine.known_requests import Arrival, Key
from bridge.model.errors import NotAllowed, ServiceBusError
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import Message, decode_message, encode_message
from bridge.wire.amqp10.performatives import Accepted, Rejected, Source, Target

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection

REQUEST_BYTES_MAX = 1_048_576
"""Maximum size of a request, unless it schedules messages that may be larger."""

REPLIES_WAITING_MAX = 2_000
"""Replies that wait for a client's credit; beyond that the oldest is dropped."""

CARRIED_OUT_MAX = 100
"""Requests of one link that are carried out at a time: their replies may be large."""

_DIGEST_BYTES = 16

OnSent = Callable[[bool], None]
"""Called once for a reply: whether it is in the client's output, or the client will not have it."""


def _ignore(is_sent: bool) -> None:
    pass


def address_of(terminus: Any) -> str:
    """Return the address of a source or target, "" if it has none."""
    if isinstance(terminus, Source | Target) and isinstance(terminus.address, str):
        return terminus.address
    return ""


class ReplyLink:
    """A link on which a client takes the replies of a node.

    Attributes:
        node: the node's path in lower case, `$cbs` or `orders/$management`.
        names: the values of a request's reply-to for this link: its target's address, and its name.
    """

    def __init__(self, connection: Connection, link: OutgoingLink, node: str) -> None:
        self.link = link
        self.node = node
        self._connection = connection
        self._waiting: deque[tuple[bytes, OnSent]] = deque()
        self._unwritten: deque[OnSent] = deque()
        self.names = {link.name, address_of(link.peer.target)} - {""}
        link.owner = self
        link.accept(is_settled=True)
        connection.reply_links.add(self)

    def send(self, payload: bytes, on_sent: OnSent = _ignore) -> None:
        """Send a reply, now or when there is credit."""
        self._waiting.append((payload, on_sent))
        self._flush()
        if len(self._waiting) > REPLIES_WAITING_MAX:
            _, dropped = self._waiting.popleft()
            dropped(False)

    def on_credit(self, event: CreditChanged) -> None:
        """Send waiting replies within the client's credit."""
        self._flush()
        if event.drain:
            self.link.drained()

    def _flush(self) -> None:
        while self._waiting and self.link.credit > 0 and self.link.is_open:
            payload, on_sent = self._waiting.popleft()
            self.link.send(uuid4().bytes, payload, is_settled=True)
            self._unwritten.append(on_sent)
            if not self.link.is_blocked:
                self.on_written()
        self._connection.flush_soon()

    def on_written(self) -> None:
        """Note that the oldest reply that was sent is in the client's output."""
        self._unwritten.popleft()(True)

    def on_detached(self) -> None:
        """Drop the waiting replies of a link that is gone."""
        self._connection.reply_links.remove(self)
        unsent = [*self._unwritten, *(on_sent for _, on_sent in self._waiting)]
        self._unwritten.clear()
        self._waiting.clear()
        for on_sent in unsent:
            on_sent(False)


class ReplyLinks:
    """The reply links of one connection, by node, reply-to and AMQP session."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, Session | None], dict[ReplyLink, None]] = {}

    def add(self, link: ReplyLink) -> None:
        """Add an attached link."""
        for key in self._keys(link):
            self._found.setdefault(key, {})[link] = None

    def remove(self, link: ReplyLink) -> None:
        """Remove a link that is gone."""
        for key in self._keys(link):
            links = self._found.get(key, {})
            links.pop(link, None)
            if not links:
                self._found.pop(key, None)

    @staticmethod
    def _keys(link: ReplyLink) -> list[tuple[str, str, Session | None]]:
        names = (*link.names, "")
        return [(link.node, name, at) for name in names for at in (link.link.session, None)]

    def drop_all(self) -> None:
        """Drop the waiting replies of all links: the connection is closed."""
        for link in {each for links in self._found.values() for each in links}:
            link.on_detached()

    def find(self, node: str, reply_to: str, session: Session) -> ReplyLink | None:
        """Return the link for a reply: named by the request, else of its session, else any."""
        for key in ((reply_to, session), (reply_to, None), ("", session), ("", None)):
            links = self._found.get((node, *key))
            if links:
                return next(iter(links))
        return None


@dataclass(slots=True)
class Request:
    """A request that came.

    Attributes:
        size_bytes: the size of the encoded message.
        key: what its copies share with it; `None` if copies cannot be told from other requests.
    """

    message: Message
    size_bytes: int
    key: Key | None


Handler = Callable[["RequestLink", Request], None]
Describe = Callable[["RequestLink", ServiceBusError], dict[str, Any]]
"""Returns the application properties of the reply to a request that failed."""


class RequestLink:
    """A link on which a client sends requests to a node.

    A request that comes again is carried out once (`KnownRequests`), if the node says how a failed
    one is answered: `$cbs` does not. There clients use one id for all their tokens, and a token
    that is put twice does no harm.

    Args:
        node: the node's path in lower case.
        credit: requests under way on the link.
        handle: called with each request; ends with a call of `reply`.
        describe: see `Describe`; `None`: every request is carried out.
        message_bytes_max: maximum size of a request.
    """

    _numbers = count()

    def __init__(
        self,
        connection: Connection,
        link: IncomingLink,
        node: str,
        credit: int,
        handle: Handler,
        describe: Describe | None = None,
        message_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        self.link = link
        self.node = node
        self.connection = connection
        self._handle = handle
        self._describe = describe
        self._number = next(self._numbers)
        self._under_way = 0
        self._carried_out = 0
        self._waiting: deque[Request] = deque()
        link.owner = self
        link.accept(credit=credit, message_bytes_max=message_bytes_max)

    def on_message(self, event: MessageArrived) -> None:
        """Accept a request as a message; its answer is another message."""
        try:
            message = decode_message(event.payload)
        except DecodeError as error:
            if not event.is_settled:
                rejected = Rejected(make_error(DECODE_ERROR, str(error)))
                self.link.settle(event.delivery_id, rejected)
            self.top_up()
            return
        if not event.is_settled:
            self.link.settle(event.delivery_id, Accepted())
        self._under_way += 1
        self.connection.unconfirmed.count(len(event.payload))
        request = Request(message, len(event.payload), self._key(message, event.payload))
        known = self.connection.known_requests
        arrival = Arrival.FIRST if request.key is None else known.arrive(request.key)
        if arrival is Arrival.FIRST:
            self._waiting.append(request)
            self._carry_out()
        elif arrival is Arrival.COPY_ANSWERED:
            assert request.key is not None
            self._send(request, known.reply(request.key) or self._not_kept(request), 1)

    def _key(self, message: Message, payload: bytes) -> Key | None:
        if self._describe is None or message.properties.message_id is None:
            return None
        return self._number, blake2b(payload, digest_size=_DIGEST_BYTES).digest()

    def _carry_out(self) -> None:
        while self._waiting and self._carried_out < CARRIED_OUT_MAX:
            self._carried_out += 1
            self._handle(self, self._waiting.popleft())

    def reply(
        self,
        request: Request,
        application_properties: dict[str, Any],
        value: Any,
        on_sent: OnSent = _ignore,
    ) -> None:
        """Reply to a request that was carried out, and to its copies.

        Args:
            on_sent: see `OnSent`; it undoes the request if the client will not have the reply.
        """
        self._carried_out -= 1
        payload = self._encode(request, application_properties, value)
        known = self.connection.known_requests
        times = 1 if request.key is None else known.answer(request.key, payload)

        def sent(is_sent: bool) -> None:
            if not is_sent and request.key is not None and on_sent is not _ignore:
                known.forget(request.key)
            on_sent(is_sent)

        self._send(request, payload, times, sent)
        self._carry_out()

    def _encode(
        self, request: Request, application_properties: dict[str, Any], value: Any
    ) -> bytes:
        reply = Message(application_properties=application_properties, value=value)
        reply.properties.correlation_id = request.message.properties.message_id
        reply.properties.to = request.message.properties.reply_to
        return encode_message(reply)

    def _not_kept(self, request: Request) -> bytes:
        """Return the reply to a copy of a request whose own reply was too large to be kept."""
        assert self._describe is not None
        error = NotAllowed(texts.REPLY_NOT_KEPT.format(id=request.message.properties.message_id))
        return self._encode(request, self._describe(self, error), None)

    def _send(
        self, request: Request, payload: bytes, times: int, on_sent: OnSent = _ignore
    ) -> None:
        """Send a reply, as often as its request came, on the link that the request names."""
        self._under_way -= times
        self.connection.unconfirmed.count(-times * request.size_bytes)
        self.top_up()
        reply_to = request.message.properties.reply_to
        name = reply_to if isinstance(reply_to, str) else ""
        target = self.connection.reply_links.find(self.node, name, self.link.session)
        if target is None:
            self.connection.log.info("reply.undeliverable", node=self.node, reply_to=reply_to)
            on_sent(False)
            return
        target.send(payload, on_sent)
        for _ in range(times - 1):
            target.send(payload)

    def top_up(self) -> None:
        """Grant credit again when much of it is used."""
        self.link.renew(self._under_way)
        self.connection.flush_soon()

    def on_detached(self) -> None:
        """Do nothing when the link is gone; replies under way are still sent."""
