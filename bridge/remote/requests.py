"""Requests and replies with a node of a server: `$cbs` and `$management`."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from bridge.machine.amqp10.client_link import ClientIncomingLink, ClientOutgoingLink
from bridge.machine.amqp10.events import (
    ClientEvent,
    CreditChanged,
    LinkDetached,
    MessageArrived,
    OutcomeArrived,
)
from bridge.machine.amqp10.termini import FIRST, UNSETTLED
from bridge.remote.attachment import ATTACH_S, Attachment, in_doubt
from bridge.remote.connection import RemoteConnection
from bridge.remote.errors import TIMEOUT, RemoteError, RemoteTimeout, error_of
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import AmqpMessage, decode_message, encode_message
from bridge.wire.amqp10.performatives import Accepted, Rejected, Source, Target

CREDIT = 1_000
"""Replies that the server may send before it is granted more."""


class RequestLinks:
    """Two links to one node: for requests, and for the replies to them.

    Args:
        node: the node's address.
    """

    def __init__(self, connection: RemoteConnection, node: str) -> None:
        self._connection = connection
        self._node = node
        self._address = str(uuid4())
        self._replies = Attachment(connection, self._on_event)
        self._requests = Attachment(connection, self._on_event)
        self._incoming: ClientIncomingLink | None = None
        self._outgoing: ClientOutgoingLink | None = None
        self._waiting: dict[str, asyncio.Future[AmqpMessage]] = {}
        self._has_credit = asyncio.Event()
        self._ended: RemoteError | None = None
        self._count = 0

    @property
    def is_open(self) -> bool:
        """Whether a request can be made."""
        links = self._incoming, self._outgoing
        return all(each is not None and each.is_open for each in links)

    async def open(self) -> None:
        """Attach both links; raises RemoteError."""
        session = self._connection.begin()
        node = self._node
        incoming = self._replies.open(
            lambda: session.attach_receiver(
                self._address,
                Source(node),
                Target(self._address),
                snd_settle_mode=UNSETTLED,
                rcv_settle_mode=FIRST,
            ),
            node,
        )
        outgoing = self._requests.open(
            lambda: session.attach_sender(
                f"{self._address}-out",
                Source(self._address),
                Target(node),
                snd_settle_mode=UNSETTLED,
                rcv_settle_mode=FIRST,
            ),
            node,
        )
        replies, self._outgoing = await asyncio.gather(incoming, outgoing)
        self._incoming = replies
        replies.grant(CREDIT)
        self._connection.flush_soon()

    async def ask(self, message: AmqpMessage, *, within_s: float = ATTACH_S) -> AmqpMessage:
        """Make a request and return its reply.

        Raises:
            RemoteTimeout: no reply in time; in doubt if the request was written.
            RemoteError: the server's refusal of the request, or the links' end; in doubt likewise.
        """
        link = self._outgoing
        assert link is not None
        try:
            async with asyncio.timeout(within_s):
                while link.is_open and link.credit <= 0:
                    self._has_credit.clear()
                    await self._has_credit.wait()
                if not link.is_open:
                    raise self._why()
                return await self._exchange(link, message)
        except TimeoutError:
            text = f"{self._node} has not replied within {within_s:.0f} s."
            error: RemoteError = RemoteTimeout(TIMEOUT, text)
            raise (in_doubt(error) if message.properties.message_id else error) from None

    async def _exchange(self, link: ClientOutgoingLink, message: AmqpMessage) -> AmqpMessage:
        self._count += 1
        number = self._number(self._count)
        message.properties.message_id = number
        message.properties.reply_to = self._address
        link.send(self._count.to_bytes(4, "big"), encode_message(message), is_settled=False)
        reply: asyncio.Future[AmqpMessage] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        self._connection.flush_soon()
        try:
            return await reply
        finally:
            self._waiting.pop(number, None)

    def _number(self, count: int) -> str:
        """Return the message id of a request; its delivery tag is the count alone."""
        return f"{self._address}-{count}"

    def _why(self) -> RemoteError:
        found = self._ended or self._connection.lost
        assert found is not None
        return found

    def _on_event(self, event: ClientEvent) -> None:
        match event:
            case MessageArrived():
                self._on_reply(event)
            case OutcomeArrived(_, deliveries, Rejected(error)):
                for each in deliveries:
                    condition = getattr(error, "condition", "amqp:internal-error")
                    description = getattr(error, "description", None)
                    number = self._number(int.from_bytes(each.tag, "big"))
                    self._fail(number, error_of(condition, description))
            case CreditChanged():
                self._has_credit.set()
            case LinkDetached():
                self._ended = self._ended or self._requests.ended or self._replies.ended
                self._has_credit.set()
                for number in list(self._waiting):
                    self._fail(number, in_doubt(self._why()))

    def _on_reply(self, event: MessageArrived) -> None:
        link = self._incoming
        if link is None:
            return
        if not event.is_settled:
            link.tell_outcome(event.delivery_id, Accepted(), is_settled=True)
        if link.credit <= CREDIT // 2:
            link.grant(CREDIT)
        try:
            reply = decode_message(event.payload)
        except DecodeError as error:
            text = f"A reply of {self._node} cannot be read: {error}"
            for number in list(self._waiting):
                self._fail(number, in_doubt(error_of("amqp:decode-error", text)))
            return
        found = self._waiting.pop(_text(reply.properties.correlation_id), None)
        if found is not None and not found.done():
            found.set_result(reply)

    def _fail(self, number: str, error: RemoteError) -> None:
        found = self._waiting.pop(number, None)
        if found is not None and not found.done():
            found.set_exception(error)

    async def close(self) -> None:
        """Detach both links."""
        for attachment, link in ((self._requests, self._outgoing), (self._replies, self._incoming)):
            if link is not None and link.is_open:
                await attachment.end(link)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
