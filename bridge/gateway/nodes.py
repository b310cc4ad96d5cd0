"""Request and reply links of the nodes `$cbs` and an entity's `$management`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.machine.amqp10.events import CreditChanged, MessageArrived
from bridge.machine.amqp10.faults import DECODE_ERROR, make_error
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.machine.amqp10.session import Session
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import Message, decode_message, encode_message
from bridge.wire.amqp10.performatives import Accepted, Rejected, Source, Target

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection

REQUEST_BYTES_MAX = 1_048_576
"""Maximum size of a request; a `schedule-message` request holds whole messages."""

REPLIES_WAITING_MAX = 1_000
"""Replies that wait for a client's credit; beyond that the oldest is dropped."""


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
        self._waiting: deque[bytes] = deque(maxlen=REPLIES_WAITING_MAX)
        self.names = {link.name, address_of(link.peer.target)} - {""}
        link.owner = self
        link.accept()
        connection.reply_links.add(self)

    def send(self, payload: bytes) -> None:
        """Send a reply, now or when there is credit."""
        self._waiting.append(payload)
        self._flush()

    def on_credit(self, event: CreditChanged) -> None:
        """Send waiting replies within the client's credit."""
        self._flush()
        if event.drain:
            self.link.drained()

    def _flush(self) -> None:
        while self._waiting and self.link.credit > 0 and self.link.is_open:
            self.link.send(uuid4().bytes, self._waiting.popleft(), is_settled=True)
        self._connection.flush_soon()

    def on_detached(self) -> None:
        """Drop the waiting replies of a link that is gone."""
        self._waiting.clear()
        self._connection.reply_links.remove(self)


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

    def find(self, node: str, reply_to: str, session: Session) -> ReplyLink | None:
        """Return the link for a reply: named by the request, else of its session, else any."""
        for key in ((reply_to, session), (reply_to, None), ("", session), ("", None)):
            links = self._found.get((node, *key))
            if links:
                return next(iter(links))
        return None


Handler = Callable[["RequestLink", Message], None]


class RequestLink:
    """A link on which a client sends requests to a node.

    Args:
        node: the node's path in lower case.
        handle: called with each request; ends with a call of `reply`.
    """

    def __init__(
        self, connection: Connection, link: IncomingLink, node: str, handle: Handler
    ) -> None:
        self.link = link
        self.node = node
        self.connection = connection
        self._handle = handle
        self._under_way = 0
        link.owner = self
        credit = connection.gateway.settings.request_credit
        link.accept(credit=credit, message_bytes_max=REQUEST_BYTES_MAX)

    def on_message(self, event: MessageArrived) -> None:
        """Accept a request as a message; its answer is another message."""
        self._under_way += 1
        try:
            message = decode_message(event.payload)
        except DecodeError as error:
            self._under_way -= 1
            if not event.is_settled:
                rejected = Rejected(make_error(DECODE_ERROR, str(error)))
                self.link.settle(event.delivery_id, rejected)
            self.top_up()
            return
        if not event.is_settled:
            self.link.settle(event.delivery_id, Accepted())
        self._handle(self, message)

    def reply(self, request: Message, application_properties: dict[str, Any], value: Any) -> None:
        """Send the reply to a request on the reply link of the request's sender."""
        self._under_way -= 1
        self.top_up()
        reply_to = request.properties.reply_to
        name = reply_to if isinstance(reply_to, str) else ""
        target = self.connection.reply_links.find(self.node, name, self.link.session)
        if target is None:
            self.connection.log.info("reply.undeliverable", node=self.node, reply_to=reply_to)
            return
        reply = Message(application_properties=application_properties, value=value)
        reply.properties.correlation_id = request.properties.message_id
        reply.properties.to = reply_to
        target.send(encode_message(reply))

    def top_up(self) -> None:
        """Grant credit again when much of it is used."""
        self.link.renew(self._under_way)
        self.connection.flush_soon()

    def on_detached(self) -> None:
        """Do nothing when the link is gone; replies under way are still sent."""
