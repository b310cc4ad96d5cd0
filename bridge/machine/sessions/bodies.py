"""Which messages have their bodies in memory: as many as the budget allows, and what is wanted."""

from __future__ import annotations

from typing import Generic, TypeVar

from bridge.machine.memory_budget import MemoryBudget
from bridge.machine.sessions.place import Place

Message = TypeVar("Message")


class Bodies(Generic[Message]):
    """The bodies of sessions' messages.

    Args:
        budget: where they are counted.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget

    def keep(self, place: Place[Message], *, is_wanted: bool) -> None:
        """Count a message's body, or let go of it: RabbitMQ has it."""
        budget = self._budget
        if is_wanted or budget.used_bytes + place.size_bytes <= budget.limit_bytes:
            budget.used_bytes += place.size_bytes
        else:
            place.message = None

    def forget(self, place: Place[Message]) -> None:
        """Let go of a message's body."""
        if place.message is not None:
            self._budget.used_bytes -= place.size_bytes
            place.message = None

    def replace(self, known: Place[Message], new: Place[Message], *, is_wanted: bool) -> None:
        """Have another copy of a message in place of the one that is known."""
        self.forget(known)
        known.generation, known.where = new.generation, new.where
        known.message, known.size_bytes = new.message, new.size_bytes
        self.keep(known, is_wanted=is_wanted)
