"""A link on which a client sends messages to an entity."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.machine.amqp10.events import MessageArrived
from bridge.machine.amqp10.faults import DECODE_ERROR, make_error
from bridge.machine.amqp10.link import IncomingLink
from bridge.message.envelopes import Outgoing
from bridge.model.entity import Right
from bridge.model.errors import NotImplementedHere, OperationTimeout, ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import BATCH_FORMAT, batch_messages
from bridge.wire.amqp10.performatives import Accepted, Rejected, TransactionalState
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.inward import record_from_message

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection


SLICE_S = 0.002
"""How long messages are decoded before other tasks get their turn of the event loop."""

AT_ONCE_BYTES = 16_384
"""Batches up to this size are decoded in one go."""

Item = TypeVar("Item")

_ID_BYTES = 16
"""Length of the message id that the bridge gives a message without one."""


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
    inward = record_from_message(raw, new_message_id=(new_id or os.urandom(_ID_BYTES)).hex())
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
    messages = batch_messages(payload)
    new_ids = os.urandom(_ID_BYTES * len(messages))
    for index, raw in enumerate(messages):
        yield outgoing(raw, new_ids[_ID_BYTES * index : _ID_BYTES * (index + 1)])


async def in_slices(each: Iterator[Item]) -> list[Item]:
    """Return the items of an iterator; other tasks get turns of the event loop in between."""
    loop = asyncio.get_running_loop()
    items = []
    end_s = loop.time() + SLICE_S
    for item in each:
        items.append(item)
        if loop.time() >= end_s:
            await asyncio.sleep(0)
            end_s = loop.time() + SLICE_S
    return items


_ACCEPTED = Accepted()

_NO_TRANSACTIONS = "amqp:transactional-state:list: no transactions here."


class SendingLink:
    """A client's sender.

    Attributes:
        path: the target entity.
        right: the right that the client's token must give for as long as the link lives.
    """

    right = Right.SEND

    def __init__(
        self, connection: Connection, link: IncomingLink, path: EntityPath, message_bytes_max: int
    ) -> None:
        self.link = link
        self.path = path
        self.connection = connection
        self._under_way = 0
        self._unread: deque[MessageArrived] = deque()
        link.owner = self
        credit = connection.gateway.settings.send_credit
        link.accept(credit=credit, message_bytes_max=message_bytes_max)

    def on_message(self, event: MessageArrived) -> None:
        """Take a message or a batch; the engine's answer becomes the outcome."""
        self._under_way += 1
        is_large = event.message_format == BATCH_FORMAT and len(event.payload) > AT_ONCE_BYTES
        if not is_large and not self._unread:
            self._take(event)
            return
        self._unread.append(event)
        self.connection.unconfirmed.count(len(event.payload))
        if len(self._unread) == 1:
            self.connection.links.spawn(self.link, self._read_in_order())

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
        self.connection.unconfirmed.count(-len(self._unread.popleft().payload))

    async def _take_in_slices(self, event: MessageArrived) -> None:
        try:
            batch = await in_slices(outgoing_each(event.payload))
        except (MappingError, DecodeError, ServiceBusError) as error:
            self._refuse(event, error)
        else:
            self._hand_over(event, batch)

    def _take(self, event: MessageArrived) -> None:
        try:
            if event.message_format == BATCH_FORMAT:
                batch: Sequence[Outgoing] = list(outgoing_each(event.payload))
            else:
                batch = (outgoing(event.payload),)
        except (MappingError, DecodeError, ServiceBusError) as error:
            self._refuse(event, error)
        else:
            self._hand_over(event, batch)

    def _hand_over(self, event: MessageArrived, batch: Sequence[Outgoing]) -> None:
        if isinstance(event.state, TransactionalState):
            self._refuse(event, NotImplementedHere(_NO_TRANSACTIONS))
            return
        size_bytes = len(event.payload)

        def on_sent(error: ServiceBusError | None) -> None:
            self.connection.unconfirmed.count(-size_bytes)
            self.connection.work.count(-1)
            try:
                if error is None:
                    self._done(event, _ACCEPTED)
                elif isinstance(error, OperationTimeout):
                    self._on_unknown(event, error)
                else:
                    self._refuse(event, error)
            except Exception as fault:
                # Others' messages are in the same envelope.
                self.connection.links.fail(self.link, fault)

        self.connection.unconfirmed.count(size_bytes)
        self.connection.work.count(1)
        try:
            self.connection.gateway.namespace.begin_sending(self.path, batch, on_sent)
        except Exception:
            self.connection.unconfirmed.count(-size_bytes)
            self.connection.work.count(-1)
            raise

    def _on_unknown(self, event: MessageArrived, error: OperationTimeout) -> None:
        """End the link: no outcome of AMQP says that a message may be stored, or not.

        Whoever sent it settled asks for none.
        """
        self._under_way -= 1
        if not event.is_settled and self.link.is_open:
            self.connection.links.end_unknown(self, error)
        self.top_up()
        self.connection.flush_soon()

    def _refuse(self, event: MessageArrived, error: Exception) -> None:
        if isinstance(error, ServiceBusError):
            outcome = self._rejected(error)
        else:
            outcome = Rejected(make_error(DECODE_ERROR, str(error)))
        self._done(event, outcome)

    def _rejected(self, error: ServiceBusError) -> Rejected:
        self.connection.log.info("send.refused", entity=str(self.path), reason=str(error))
        return Rejected(make_error(*self.connection.describe(error, str(self.path))))

    def _done(self, event: MessageArrived, outcome: Any) -> None:
        self._under_way -= 1
        if not event.is_settled and self.link.is_open:
            self.link.settle(event.delivery_id, outcome)
        self.top_up()
        self.connection.flush_soon()

    def top_up(self) -> None:
        """Grant credit again when much of it is used."""
        self.link.renew(self._under_way)

    def refusal(self) -> ServiceBusError | None:
        """Return `None`: the link never has to end, each send is refused by itself."""
        return None

    def on_detached(self) -> None:
        """Do nothing when the link is gone; messages already taken are still stored."""
