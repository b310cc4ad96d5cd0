"""A held message: its content, and the channel and delivery tag that settle it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from bridge.message.message import Message
from bridge.message.received import Received
from bridge.wire.commits import NO_INQUIRY

Channel = TypeVar("Channel")


@dataclass(slots=True, eq=False)
class Held(Message, Generic[Channel]):
    """A message that this process holds unacked.

    Attributes:
        fetch: the number of the fetch that brought it.
        channel: the channel that delivered it, and settles it.
        tag: its delivery tag on that channel.
        inquiry: the inquiry that it was delivered after (`wire.commits`).
        redelivered: whether it was delivered before, as far as RabbitMQ knows.
    """

    fetch: int
    channel: Channel
    tag: int
    inquiry: bytes = NO_INQUIRY
    redelivered: bool = False

    def received(
        self,
        *,
        lock_token: UUID | None = None,
        locked_until_ms: int | None = None,
        is_deferred: bool = False,
    ) -> Received:
        """Return the message as a receiver gets it."""
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
class HeldCopy(Generic[Channel]):
    """A second copy of a message, held unacked; its content is not kept.

    Attributes:
        fetch: the number of the fetch that brought it.
        channel: the channel that delivered it, and settles it.
        tag: its delivery tag on that channel.
    """

    fetch: int
    channel: Channel
    tag: int


def copy_of(held: Held[Channel]) -> HeldCopy[Channel]:
    """Return what is kept of a message that is a second copy."""
    return HeldCopy(held.fetch, held.channel, held.tag)
