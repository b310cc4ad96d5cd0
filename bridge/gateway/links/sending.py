"""A link on which a client sends messages to an entity."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from bridge.engine.texts import too_large
from bridge.gateway.client.client import Client
from bridge.gateway.client.links import EntityLink
from bridge.gateway.links.transacted_sends import begin_send
from bridge.machine.amqp10.events import MessageArrived
from bridge.machine.amqp10.faults import DECODE_ERROR, make_error
from bridge.machine.amqp10.link import IncomingLink
from bridge.message.envelopes import Outgoing
from bridge.model.entity import Right
from bridge.model.errors import (
    MessageSizeExceeded,
    OperationTimeout,
    ServiceBusError,
)
from bridge.model.name import EntityPath
from bridge.wire import link_properties
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import BATCH_FORMAT, batch_messages
from bridge.wire.amqp10.performatives import Accepted, Rejected, TransactionalState
from bridge.wire.amqp10.scalars import Symbol, Ulong
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.inward import record_from_message

AT_ONCE_BYTES = 8_192
"""Batches up to this size are decoded in one go."""

BATCH_BYTES_MAX = 1_048_576
"""The largest batch, whatever the entity takes (Service Bus quotas: 1 MB on Premium, too)."""

MESSAGE_ID_BYTES = 16
"""Length of the message id that the bridge gives a message without one."""

_IDS = 64
"""How many of them are made at a time for a batch."""


def outgoing(raw: bytes, new_id: bytes | None = None) -> Outgoing:
    """Return one encoded message in the engine's form.

    Args:
        raw: the encoded message.
        new_id: random bytes, the id of a message without one; by default they are made here.

    Raises:
        MappingError: the bytes are no message.
        ArgumentOutOfRange: an id or a key of the message is too long.
        NotAllowed: the partition key differs from the session id.
    """
    inward = record_from_message(raw, new_message_id=(new_id or os.urandom(MESSAGE_ID_BYTES)).hex())
    return Outgoing(
        record=inward.record,
        size_bytes=len(raw),
        scheduled_ms=inward.scheduled_ms,
        session_id=inward.session_id,
    )


def outgoing_each(payload: bytes) -> Iterator[Outgoing]:
    """Yield the messages of a batch.

    Raises:
        MappingError, DecodeError: the bytes are no batch, or contain an invalid message.
        ArgumentOutOfRange, NotAllowed: as for one message.
    """
    new_ids = b""
    for raw in batch_messages(payload):
        if not new_ids:
            new_ids = os.urandom(MESSAGE_ID_BYTES * _IDS)  # one call costs as much as a message
        yield outgoing(raw, new_ids[:MESSAGE_ID_BYTES])
        new_ids = new_ids[MESSAGE_ID_BYTES:]


Read = tuple[Callable[[bytes], Outgoing], Callable[[bytes], Iterator[Outgoing]]]
"""Reads a single message, and the messages of a batch."""

READ: Read = outgoing, outgoing_each

_ACCEPTED = Accepted()
_NOTHING: Mapping[Symbol, Any] = {}


class SendingLink(EntityLink):
    """A client's sender.

    Args:
        message_bytes_max: the largest message that the link takes.
        read: reads the messages.
        said: further properties of the gateway's attach.

    Attributes:
        path: the target entity.
        right: the right that the client's token must give for as long as the link lives.
    """

    link: IncomingLink
    right = Right.SEND

    def __init__(
        self,
        client: Client,
        link: IncomingLink,
        path: EntityPath,
        message_bytes_max: int,
        read: Read = READ,
        said: Mapping[Symbol, Any] = _NOTHING,
    ) -> None:
        self.link = link
        self.path = path
        self.client = client
        self._read_one, self._read_each = read
        self._under_way = 0
        self._unread: deque[MessageArrived] = deque()
        link.owner = self
        self._said = said
        self._batch_bytes_max = 0
        self.begin(message_bytes_max)

    def begin(self, message_bytes_max: int) -> None:
        """Answer the attach, and take messages."""
        self._batch_bytes_max = min(message_bytes_max, BATCH_BYTES_MAX)
        said = {link_properties.BATCH_BYTES_MAX: Ulong(self._batch_bytes_max), **self._said}
        self.link.accept(
            credit=self.client.settings.send_credit,
            message_bytes_max=message_bytes_max,
            properties=said,
        )

    def on_message(self, event: MessageArrived) -> None:
        """Take a message or a batch; the engine's answer becomes the outcome."""
        self._under_way += 1
        if isinstance(event.state, TransactionalState):
            self._operate(event, event.state)
            return
        if not self.is_large(event) and not self._unread:
            self._take(event)
            return
        self._unread.append(event)
        self.client.unconfirmed.count(len(event.payload))
        if len(self._unread) == 1:
            self.client.links.spawn(self.link, self._read_in_order())

    def is_large(self, event: MessageArrived) -> bool:
        """Whether an event brings a batch that is to be decoded in slices."""
        return event.message_format == BATCH_FORMAT and len(event.payload) > AT_ONCE_BYTES

    def read(self, event: MessageArrived) -> Iterator[Outgoing]:
        """Yield the message of an event, or those of its batch.

        Raises:
            MappingError, DecodeError, ServiceBusError: as `outgoing_each`.
        """
        if event.message_format == BATCH_FORMAT:
            return self._read_each(event.payload)
        return iter((self._read_one(event.payload),))

    def _operate(self, event: MessageArrived, state: TransactionalState) -> None:
        begin_send(self, event, state)

    async def _read_in_order(self) -> None:
        """Decode a large batch in slices, then the messages behind it: the order stays."""
        try:
            while self._unread:
                event = self._unread[0]
                if event.message_format == BATCH_FORMAT:
                    await self._take_in_slices(event)
                else:
                    self._take(event)
                self._forget_unread()
        finally:
            while self._unread:
                self._forget_unread()

    def _forget_unread(self) -> None:
        self.client.unconfirmed.count(-len(self._unread.popleft().payload))

    async def _take_in_slices(self, event: MessageArrived) -> None:
        if not self._is_taken(event):
            return
        send = self.client.namespace.begin_sending_each
        self._count(event, 1)
        try:
            await send(self.path, self._read_each(event.payload), partial(self._on_sent, event))
        except BaseException as error:
            self._count(event, -1)
            if not isinstance(error, MappingError | DecodeError | ServiceBusError):
                raise
            self._refuse(event, error)

    def _take(self, event: MessageArrived) -> None:
        if not self._is_taken(event):
            return
        try:
            if event.message_format == BATCH_FORMAT:
                batch: Sequence[Outgoing] = list(self._read_each(event.payload))
            else:
                batch = (self._read_one(event.payload),)
        except (MappingError, DecodeError, ServiceBusError) as error:
            self._refuse(event, error)
            return
        self._count(event, 1)
        try:
            on_sent = partial(self._on_sent, event)
            self.client.namespace.begin_sending(self.path, batch, on_sent)
        except Exception:
            self._count(event, -1)
            raise

    def _is_taken(self, event: MessageArrived) -> bool:
        """Refuse a batch that is too large."""
        try:
            self.check_size(event)
        except MessageSizeExceeded as error:
            self._refuse(event, error)
            return False
        return True

    def check_size(self, event: MessageArrived) -> None:
        """Raise MessageSizeExceeded for a batch that is too large."""
        size_bytes = len(event.payload)
        if event.message_format == BATCH_FORMAT and size_bytes > self._batch_bytes_max:
            text = too_large(str(self.path), size_bytes, self._batch_bytes_max)
            raise MessageSizeExceeded(text)

    def _count(self, event: MessageArrived, sign: int) -> None:
        """Count a message whose outcome is not known yet, or (-1) no longer."""
        self.client.unconfirmed.count(sign * len(event.payload))
        self.client.work.count(sign)

    def _on_sent(self, event: MessageArrived, error: ServiceBusError | None) -> None:
        self._count(event, -1)
        try:
            if error is None:
                self.done(event, _ACCEPTED)
            elif isinstance(error, OperationTimeout):
                self._on_unknown(event, error)
            else:
                self._refuse(event, error)
        except Exception as fault:
            # Others' messages are in the same envelope.
            self.client.links.fail(self.link, fault)

    def _on_unknown(self, event: MessageArrived, error: OperationTimeout) -> None:
        """End the link: no outcome of AMQP says that a message may be stored, or not.

        Whoever sent it settled asks for none.
        """
        self._under_way -= 1
        if not event.is_settled and self.link.is_open:
            self.client.links.end_unknown(self, error)
        self.top_up()
        self.client.flush_soon()

    def _refuse(self, event: MessageArrived, error: Exception) -> None:
        if isinstance(error, ServiceBusError):
            outcome = self.rejected(error)
        else:
            outcome = Rejected(make_error(DECODE_ERROR, str(error)))
        self.done(event, outcome)

    def rejected(self, error: ServiceBusError) -> Rejected:
        """Return the outcome that tells an error; it is logged."""
        self.client.log.info("send.refused", entity=str(self.path), reason=str(error))
        return Rejected(make_error(*self.client.describe(error, str(self.path))))

    def done(self, event: MessageArrived, outcome: Any) -> None:
        """Write the outcome of a message that came."""
        self._under_way -= 1
        if not event.is_settled and self.link.is_open:
            self.link.settle(event.delivery_id, outcome)
        self.top_up()
        self.client.flush_soon()

    def top_up(self) -> None:
        """Grant credit again when much of it is used."""
        self.link.renew(self._under_way)

    def refusal(self) -> ServiceBusError | None:
        """Return `None`: the link never has to end, each send is refused by itself."""
        return None

    def on_detached(self) -> None:
        """Do nothing when the link is gone; messages already taken are still stored."""
