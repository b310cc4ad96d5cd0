"""How much of what RabbitMQ keeps may be in memory, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MemoryBudget:
    """What bodies of messages may weigh in memory, shared by all that hold some in a process.

    Attributes:
        limit_bytes: how much may be here.
        used_bytes: how much is.
    """

    limit_bytes: int
    used_bytes: int = 0
