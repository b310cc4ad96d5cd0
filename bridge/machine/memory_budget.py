"""How much of what RabbitMQ keeps may be in memory, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Place(Protocol):
    """Where a message is known.

    Attributes:
        message: it, or `None` while its body is not here.
        size_bytes: what it takes.
    """

    message: Any
    size_bytes: int


@dataclass(slots=True)
class MemoryBudget:
    """What bodies of messages may weigh in memory, shared by all that hold some in a process.

    Attributes:
        limit_bytes: how much may be here.
        used_bytes: how much is.
    """

    limit_bytes: int
    used_bytes: int = 0

    def keep(self, place: Place, *, is_wanted: bool) -> None:
        """Count a message's body, or let go of it: RabbitMQ has it."""
        if is_wanted or self.used_bytes + place.size_bytes <= self.limit_bytes:
            self.used_bytes += place.size_bytes
        else:
            place.message = None

    def forget(self, place: Place) -> None:
        """Let go of a message's body."""
        if place.message is not None:
            self.used_bytes -= place.size_bytes
            place.message = None
