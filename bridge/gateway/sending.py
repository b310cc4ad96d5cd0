"""A link on which a client sends messages to an entity."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bridge.engine.api import Outgoing
from bridge.machine.amqp10.events import MessageArrived
from bridge.machine.amqp10.faults import DECODE_ERROR, make_error
from bridge.machine.amqp10.link import IncomingLink
from bridge.model.entity import Right
from bridge.model.errors import NotImplementedHere, ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import BATCH_FORMAT, batch_messages
from bridge.wire.amqp10.performatives import Accepted, Rejected, TransactionalState
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.inward import record_from_message

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection


_ID_BYTES = 16
"""Of the message id that a message gets which came without one."""


def outgoing(raw: bytes, new_id: bytes | None = None) -> Outgoing:
    """Return one encoded message as the engine takes it.

    Args:
        raw: the message.
        new_id: random bytes, its id if it has none; by default they are made here.

    Raises:
        MappingError: the bytes are no message.
        ArgumentOutOfRange: an id or a key of it is too long.
    """
    inward = record_from_message(raw, new_message_id=(new_id or os.urandom(_ID_BYTES)).hex())
    return Outgoing(
        record=inward.record,
        size_bytes=len(raw),
        scheduled_ms=inward.scheduled_ms,
        session_id=inward.session_id,
    )


def outgoing_batch(message_format: int, payload: bytes) -> Sequence[Outgoing]:
    """Return the messages of a transfer: Azure's batch format tells whether it is several.

    Raises:
        MappingError, DecodeError: the bytes are no message, or no batch.
        ArgumentOutOfRange: an id or a key of a message is too long.
    """
    if message_format == BATCH_FORMAT:
        messages = batch_messages(payload)
        new_ids = os.urandom(_ID_BYTES * len(messages))
        return [
            outgoing(raw, new_ids[at : at + _ID_BYTES])
            for raw, at in zip(messages, range(0, len(new_ids), _ID_BYTES), strict=True)
        ]
    return (outgoing(payload),)


class SendingLink:
    """A client's sender.

    Attributes:
        path: the entity it sends to.
        right: what the client's token must give for as long as the link lives.
    """

    right = Right.SEND

    def __init__(
        self, connection: Connection, link: IncomingLink, path: EntityPath, message_bytes_max: int
    ) -> None:
        self.link = link
        self.path = path
        self.connection = connection
        self._under_way = 0
        self._credit = connection.gateway.settings.send_credit
        link.owner = self
        link.accept(credit=self._credit, message_bytes_max=message_bytes_max)

    def on_message(self, event: MessageArrived) -> None:
        """Take a message or a batch; the engine's answer becomes the outcome."""
        self._under_way += 1
        try:
            if isinstance(event.state, TransactionalState):
                raise NotImplementedHere("amqp:transactional-state:list: no transactions here.")
            batch = outgoing_batch(event.message_format, event.payload)
        except (MappingError, DecodeError) as unreadable:
            self._done(event, Rejected(make_error(DECODE_ERROR, str(unreadable))))
            return
        except ServiceBusError as error:
            self._done(event, self._rejected(error))
            return
        self.connection.input_bytes(len(event.payload))
        self.connection.spawn(self._send(event, batch))

    async def _send(self, event: MessageArrived, batch: Sequence[Outgoing]) -> None:
        try:
            await self.connection.gateway.namespace.send(self.path, batch)
        except ServiceBusError as error:
            self._done(event, self._rejected(error))
        else:
            self._done(event, Accepted())
        finally:
            self.connection.input_bytes(-len(event.payload))

    def _rejected(self, error: ServiceBusError) -> Rejected:
        self.connection.log("send.refused", entity=str(self.path), reason=str(error))
        return Rejected(make_error(*self.connection.describe(error, str(self.path))))

    def _done(self, event: MessageArrived, outcome: Any) -> None:
        self._under_way -= 1
        if not event.is_settled and self.link.is_open:
            self.link.settle(event.delivery_id, outcome)
        self.top_up()
        self.connection.flush_soon()

    def top_up(self) -> None:
        """Grant credit again when much of it is used; what is under way counts as used."""
        free = self._credit - self._under_way
        if self.link.credit <= self._credit // 2 and self.link.credit + self._credit // 4 <= free:
            self.link.grant(free)

    def refusal(self) -> ServiceBusError | None:
        """Return why the link must end: never, each send is refused by itself."""
        return None

    def on_detached(self) -> None:
        """The link is gone; what was taken is stored all the same."""
