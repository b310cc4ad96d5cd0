"""The memory budget: a limit for bodies in memory of messages that RabbitMQ keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class BodyEntry(Protocol):
    """The entry of a message.

    Attributes:
        message: the message, or `None` while its body is not in memory.
        size_bytes: the size of the message's body.
    """

    message: Any
    size_bytes: int


@dataclass(slots=True)
class MemoryBudget:
    """The limit of message bodies in memory, shared by all holders in a process.

    Attributes:
        limit_bytes: the limit of all bodies together.
        used_bytes: the total size of the bodies in memory.
    """

    limit_bytes: int
    used_bytes: int = 0

    def keep(self, place: BodyEntry, *, is_wanted: bool) -> None:
        """Count a message's body, or above the limit drop the body: RabbitMQ has it."""
        if is_wanted or self.used_bytes + place.size_bytes <= self.limit_bytes:
            self.used_bytes += place.size_bytes
        else:
            place.message = None

    def forget(self, place: BodyEntry) -> None:
        """Drop a message's body."""
        if place.message is not None:
            self.used_bytes -= place.size_bytes
            place.message = None
