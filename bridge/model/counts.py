"""How many messages an entity has, by state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The messages of an entity; none is below 0.

    Attributes:
        active: ready or locked; of an entity that forwards none is.
        deferred: set aside, of the entity and of its dead-letter queue.
        transfer: on their way to the entity that they are forwarded to.
        transfer_dead_letter: none: what cannot be forwarded is a dead letter.
        size_bytes: of all of them, as RabbitMQ knows it; seconds old.
    """

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    deferred: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0

    @property
    def total(self) -> int:
        """Every message, whatever its state."""
        return (
            self.active
            + self.dead_letter
            + self.scheduled
            + self.deferred
            + self.transfer
            + self.transfer_dead_letter
        )
