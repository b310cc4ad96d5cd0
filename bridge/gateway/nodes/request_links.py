"""The links on which a client sends requests to `$cbs` and to an entity's `$management`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import Any

from bridge.gateway.client import texts
from bridge.gateway.client.client import Client
from bridge.gateway.client.reply_links import OnSent, unheard
from bridge.machine.amqp10.events import MessageArrived
from bridge.machine.amqp10.faults import DECODE_ERROR, make_error
from bridge.machine.amqp10.known_requests import Key, RequestArrival
from bridge.machine.amqp10.link import IncomingLink
from bridge.model.errors import ArgumentError, NotAllowed, ServiceBusError
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import AmqpMessage, decode_message, encode_message
from bridge.wire.amqp10.performatives import (
    Accepted,
    Rejected,
    TransactionalState,
)

REQUEST_BYTES_MAX = 1_048_576
"""Maximum size of a request, unless it schedules messages that may be larger."""

CARRIED_OUT_MAX = 100
"""Requests of one link that are carried out at a time: their replies may be large."""

_DIGEST_BYTES = 16


@dataclass(slots=True)
class LinkRequest:
    """A request that came.

    Attributes:
        size_bytes: the size of the encoded message.
        key: what its copies share with it; `None` if copies cannot be told from other requests.
        txn_id: the transaction with whose commit the client wants it carried out; `None` for none.
    """

    message: AmqpMessage
    size_bytes: int
    key: Key | None
    txn_id: bytes | None


Handler = Callable[["RequestLink", LinkRequest], None]
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
        client: Client,
        link: IncomingLink,
        node: str,
        credit: int,
        handle: Handler,
        describe: Describe | None = None,
        message_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        self.link = link
        self.node = node
        self.client = client
        self._handle = handle
        self._describe = describe
        self._number = next(self._numbers)
        self._under_way = 0
        self._carried_out = 0
        self._waiting: deque[LinkRequest] = deque()
        link.owner = self
        link.accept(credit=credit, message_bytes_max=message_bytes_max)

    def on_message(self, event: MessageArrived) -> None:
        """Accept a request as a message; its answer is another message."""
        txn_id = event.state.txn_id if isinstance(event.state, TransactionalState) else None
        try:
            message = decode_message(event.payload)
        except DecodeError as error:
            if txn_id is not None and self.client.transactions is not None:
                self.client.transactions.doom(txn_id, ArgumentError(str(error)))
            if not event.is_settled:
                rejected = Rejected(make_error(DECODE_ERROR, str(error)))
                self.link.settle(event.delivery_id, rejected)
            self.top_up()
            return
        if not event.is_settled:
            accepted = Accepted()
            state = accepted if txn_id is None else TransactionalState(txn_id, accepted)
            self.link.settle(event.delivery_id, state)
        self._under_way += 1
        self.client.unconfirmed.count(len(event.payload))
        request = LinkRequest(
            message,
            len(event.payload),
            self._key(message, event.payload),
            txn_id,
        )
        known = self.client.known_requests
        arrival = RequestArrival.FIRST if request.key is None else known.arrive(request.key)
        if arrival is RequestArrival.FIRST:
            self._waiting.append(request)
            self._carry_out()
        elif arrival is RequestArrival.COPY_ANSWERED:
            assert request.key is not None
            self._send(request, known.reply(request.key) or self._not_kept(request), 1)

    def _key(self, message: AmqpMessage, payload: bytes) -> Key | None:
        if self._describe is None or message.properties.message_id is None:
            return None
        return self._number, blake2b(payload, digest_size=_DIGEST_BYTES).digest()

    def _carry_out(self) -> None:
        while self._waiting and self._carried_out < CARRIED_OUT_MAX:
            self._carried_out += 1
            self._handle(self, self._waiting.popleft())

    def reply(
        self,
        request: LinkRequest,
        application_properties: dict[str, Any],
        value: Any,
        on_sent: OnSent = unheard,
    ) -> None:
        """Reply to a request that was carried out, and to its copies.

        Args:
            on_sent: see `OnSent`; it undoes the request if the client will not have the reply.
        """
        self._carried_out -= 1
        payload = self._encode(request, application_properties, value)
        known = self.client.known_requests
        times = 1 if request.key is None else known.answer(request.key, payload)

        def sent(is_sent: bool) -> None:
            if not is_sent and request.key is not None and on_sent is not unheard:
                known.forget(request.key)
            on_sent(is_sent)

        self._send(request, payload, times, sent)
        self._carry_out()

    def _encode(
        self, request: LinkRequest, application_properties: dict[str, Any], value: Any
    ) -> bytes:
        reply = AmqpMessage(application_properties=application_properties, value=value)
        reply.properties.correlation_id = request.message.properties.message_id
        reply.properties.to = request.message.properties.reply_to
        return encode_message(reply)

    def _not_kept(self, request: LinkRequest) -> bytes:
        """Return the reply to a copy of a request whose own reply was too large to be kept."""
        assert self._describe is not None
        error = NotAllowed(texts.REPLY_NOT_KEPT.format(id=request.message.properties.message_id))
        return self._encode(request, self._describe(self, error), None)

    def _send(
        self, request: LinkRequest, payload: bytes, times: int, on_sent: OnSent = unheard
    ) -> None:
        """Send a reply, as often as its request came, on the link that the request names."""
        self._under_way -= times
        self.client.unconfirmed.count(-times * request.size_bytes)
        self.top_up()
        reply_to = request.message.properties.reply_to
        name = reply_to if isinstance(reply_to, str) else ""
        target = self.client.reply_links.find(self.node, name, self.link.session)
        if target is None:
            self.client.log.info("reply.undeliverable", node=self.node, reply_to=reply_to)
            on_sent(False)
            return
        target.send(payload, on_sent)
        for _ in range(times - 1):
            target.send(payload)

    def top_up(self) -> None:
        """Grant credit again when much of it is used."""
        self.link.renew(self._under_way)
        self.client.flush_soon()

    def on_detached(self) -> None:
        """Do nothing when the link is gone; replies under way are still sent."""
