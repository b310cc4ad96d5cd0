"""A held message: its content, and the channel and delivery tag that settle it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.engine.api import Received
from bridge.message import message
from bridge.message.message import Message
from bridge.wire.copies import Reader


@dataclass(slots=True, eq=False)
class HeldMessage(Message):
    """A message that this process holds unacked.

    Attributes:
        fetch: the number of the fetch that brought it.
        channel: the channel that delivered it, and settles it.
        tag: its delivery tag on that channel.
    """

    fetch: int
    channel: Channel
    tag: int

    def received(
        self,
        *,
        lock_token: UUID | None = None,
        locked_until_ms: int | None = None,
        is_deferred: bool = False,
    ) -> Received:
        """Return the message for a gateway."""
        return Received(
            record=self.record,
            sequence_number=max(self.number, 0),
            enqueued_ms=self.enqueued_ms,
            delivery_count=self.failures,
            lock_token=lock_token,
            locked_until_ms=locked_until_ms,
            time_to_live_ms=self.time_to_live_ms,
            dead_letter=self.death,
            is_deferred=is_deferred,
            is_scheduled=self.was_scheduled and not is_deferred,
        )


@dataclass(slots=True, eq=False)
class Copy:
    """A second copy of a message, held unacked; its content is not kept.

    Attributes:
        fetch: the number of the fetch that brought it.
        channel: the channel that delivered it, and settles it.
        tag: its delivery tag on that channel.
    """

    fetch: int
    channel: Channel
    tag: int


def read(
    delivery: Delivery, fetch: int, *, can_expire: bool, reader: Reader | None = None
) -> HeldMessage:
    """Return a delivery as a held message; see `message.facts`."""
    facts = message.facts(
        delivery.properties,
        delivery.body,
        delivery.exchange,
        can_expire=can_expire,
        reader=reader,
    )
    return HeldMessage(*facts, fetch, delivery.channel, delivery.tag)


def unreadable(delivery: Delivery, fetch: int) -> HeldMessage:
    """Return a delivery as a held message that has only the body."""
    facts = message.unreadable(delivery.body, delivery.exchange)
    return HeldMessage(*facts, fetch, delivery.channel, delivery.tag)
