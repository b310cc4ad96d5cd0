"""Counts of an entity's messages, by state."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of an entity's messages; none is below 0.

    Attributes:
        active: ready or locked; 0 for an entity that forwards.
        deferred: deferred messages, of the entity and of its dead-letter queue.
        transfer: on their way to the entity that they are forwarded to, or that a transaction sent
            them to.
        transfer_dead_letter: messages of transactions that their targets have not taken; what
            cannot be forwarded is a dead letter.
        size_bytes: of all messages, as RabbitMQ knows it; seconds old. `None`: it is not known yet.
        accessed_ms: when a client used the entity last (UTC ms); 0: never. `None`: it is not known
            now. Counts that differ in it alone are equal.
        is_old: they are no longer true, perhaps: there is no answer now.
    """

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    deferred: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int | None = 0
    accessed_ms: int | None = field(default=0, compare=False)
    is_old: bool = False

    @property
    def total(self) -> int:
        """All messages, in any state."""
        return (
            self.active
            + self.dead_letter
            + self.scheduled
            + self.deferred
            + self.transfer
            + self.transfer_dead_letter
        )
