"""Nodes that are talked to in requests and replies: `$cbs` and an entity's `$management`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
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
"""A `schedule-message` request holds whole messages."""

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
    """

    def __init__(self, connection: Connection, link: OutgoingLink, node: str) -> None:
        self.link = link
        self.node = node
        self._connection = connection
        self._waiting: deque[bytes] = deque(maxlen=REPLIES_WAITING_MAX)
        self._names = {link.name, address_of(link.peer.target)} - {""}
        link.owner = self
        link.accept()

    def answers_to(self, reply_to: str) -> bool:
        """Whether a request's reply-to names this link: by its target's address, or its name."""
        return reply_to in self._names

    def send(self, payload: bytes) -> None:
        """Send a reply, now or when there is credit."""
        self._waiting.append(payload)
        self._flush()

    def on_credit(self, event: CreditChanged) -> None:
        """The client takes replies."""
        self._flush()
        if event.drain:
            self.link.drained()

    def _flush(self) -> None:
        while self._waiting and self.link.credit > 0 and self.link.is_open:
            self.link.send(uuid4().bytes, self._waiting.popleft(), is_settled=True)
        self._connection.flush_soon()

    def on_detached(self) -> None:
        """The link is gone."""
        self._waiting.clear()
        self._connection.reply_links.pop(self.link, None)


def reply_link_for(
    links: Iterable[ReplyLink], node: str, reply_to: str, session: Session
) -> ReplyLink | None:
    """Return the link for a reply: named by the request, else of its session, else any."""

    def fitness(each: ReplyLink) -> tuple[bool, bool]:
        return bool(reply_to) and each.answers_to(reply_to), each.link.session is session

    return max((each for each in links if each.node == node), key=fitness, default=None)


Handler = Callable[["RequestLink", Message], None]


class RequestLink:
    """A link on which a client sends requests to a node.

    Args:
        node: the node's path in lower case.
        handle: is called with each request; it ends with `reply`.
    """

    def __init__(
        self, connection: Connection, link: IncomingLink, node: str, handle: Handler
    ) -> None:
        self.link = link
        self.node = node
        self.connection = connection
        self._handle = handle
        self._under_way = 0
        self._credit = connection.gateway.settings.request_credit
        link.owner = self
        link.accept(credit=self._credit, message_bytes_max=REQUEST_BYTES_MAX)

    def on_message(self, event: MessageArrived) -> None:
        """Take a request: it is accepted as a message, then answered by another."""
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
        """Send the reply to a request on the link that its sender listens on."""
        self._under_way -= 1
        self.top_up()
        reply_to = request.properties.reply_to
        target = reply_link_for(
            self.connection.reply_links.values(),
            self.node,
            reply_to if isinstance(reply_to, str) else "",
            self.link.session,
        )
        if target is None:
            self.connection.log("reply.undeliverable", node=self.node, reply_to=reply_to)
            return
        reply = Message(application_properties=application_properties, value=value)
        reply.properties.correlation_id = request.properties.message_id
        reply.properties.to = reply_to
        target.send(encode_message(reply))

    def top_up(self) -> None:
        """Grant credit again when much of it is used."""
        free = self._credit - self._under_way
        if self.link.credit < self._credit // 2 and self.link.credit + self._credit // 4 < free:
            self.link.grant(free)
            self.connection.flush_soon()

    def on_detached(self) -> None:
        """The link is gone; replies under way still go out."""
