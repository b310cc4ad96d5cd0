"""A message on its way to an application."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from bridge.wire.mapping.outward import (
    MESSAGE_STATE_ACTIVE,
    MESSAGE_STATE_DEFERRED,
    MESSAGE_STATE_SCHEDULED,
)
from bridge.wire.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message that was received, deferred or peeked.

    Attributes:
        delivery_count: failed deliveries before this one (0 at first), as on the wire.
        lock_token: the token that settles the message; `None` in receive-and-delete.
        locked_until_ms: the lock's end (UTC ms).
        time_to_live_ms: effective TTL, counted from `enqueued_ms`; `None` means for ever.
        dead_letter: reason and description, when the message is in a dead-letter queue and RabbitMQ
            itself moved it there (otherwise they are among the record's headers).
        is_deferred: whether the message was deferred, and received by its number.
        is_scheduled: peeked, that it waits for its time, which is then its `enqueued_ms`; received,
            that it has waited (Azure's JavaScript live test sendAndSchedule). Never with
            `is_deferred`.
    """

    record: Record
    sequence_number: int
    enqueued_ms: int
    delivery_count: int
    lock_token: UUID | None = None
    locked_until_ms: int | None = None
    time_to_live_ms: int | None = None
    dead_letter: tuple[str, str] | None = None
    is_deferred: bool = False
    is_scheduled: bool = False

    @property
    def state(self) -> int:
        """The message's state as Service Bus numbers it: active, deferred or scheduled."""
        if self.is_scheduled:
            return MESSAGE_STATE_SCHEDULED
        return MESSAGE_STATE_DEFERRED if self.is_deferred else MESSAGE_STATE_ACTIVE
