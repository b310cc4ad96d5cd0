"""A message on its way to the application."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from bridge.wire.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message that was received, deferred or peeked.

    Attributes:
        delivery_count: failed deliveries before this one.
        lock_token: what settles it, or `None`.
        locked_until_ms: the lock's end (UTC ms).
        time_to_live_ms: effective TTL, `None` for ever.
        dead_letter: reason and description, when RabbitMQ itself has dead-lettered it.
        state: 0 active, 1 deferred, 2 scheduled.
    """

    record: Record
    sequence_number: int
    enqueued_ms: int
    delivery_count: int
    lock_token: UUID | None = None
    locked_until_ms: int | None = None
    time_to_live_ms: int | None = None
    dead_letter: tuple[str, str] | None = None
    state: int = 0
