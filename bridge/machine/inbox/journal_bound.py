"""The size limit of an entity's journal: the usual bound, or as much as its backlog needs.

Peeks read the journal, and a left-out subscription is caught up from it. So while unsettled
messages would fall out of the journal, its bound is raised: by doubling, up to the entity's size.
The bound is lowered again, by halving, when half of it has been enough for a while: RabbitMQ at
once drops all entries beyond a lower bound.
"""

from __future__ import annotations

from bridge.model.capacity import capacity_mb
from bridge.model.entity import SendEntity
from bridge.topology.parts import JOURNAL_BYTES_MAX
from bridge.topology.policy import MEBIBYTE

LOWER_AFTER_S = 600.0

_NEEDED_QUARTERS = 6
"""The bound is at least so many quarters of the need: a backlog grows between two looks."""


def most_bytes(entity: SendEntity) -> int:
    """Return the largest size of an entity's journal."""
    return capacity_mb(entity) * MEBIBYTE


class JournalBound:
    """The bound of one journal.

    Args:
        bytes_now: the present bound.
        most_bytes: the largest bound.
        base_bytes: the smallest bound.
        lower_after_s: how long half the bound must have been enough before it is halved.

    Attributes:
        bytes: the bound to be set.
    """

    def __init__(
        self,
        bytes_now: int,
        most_bytes: int,
        base_bytes: int = JOURNAL_BYTES_MAX,
        lower_after_s: float = LOWER_AFTER_S,
    ) -> None:
        self._base = base_bytes
        self._most = max(most_bytes, base_bytes)
        self._lower_after_s = lower_after_s
        self._roomy_s: float | None = None
        self.bytes = max(bytes_now, base_bytes)

    def look(self, needed_bytes: int, now_s: float) -> bool:
        """Follow the backlog; return whether the bound has changed.

        Args:
            needed_bytes: the size of the journal from the oldest unsettled message on.
            now_s: a clock that never goes back.
        """
        before = self.bytes
        wanted = needed_bytes * _NEEDED_QUARTERS // 4
        if wanted * 2 > self.bytes and self.bytes <= self._most:
            self._roomy_s = None
            while self.bytes < wanted and self.bytes < self._most:
                self.bytes = min(self.bytes * 2, self._most)
        elif self._roomy_s is None:
            self._roomy_s = now_s
        elif now_s - self._roomy_s >= self._lower_after_s and self.bytes > self._base:
            self._roomy_s = now_s
            self.bytes = max(min(self.bytes, self._most) // 2, self._base)
        return self.bytes != before

    def is_enough(self, needed_bytes: int) -> bool:
        """Whether the bound holds the need."""
        return needed_bytes <= self.bytes


def needed_entries(numbers: dict[bytes, int], last: int, ready: dict[bytes, int]) -> int:
    """Return how many entries of a topic's journal its subscriptions need.

    Args:
        numbers: how many numbers each subscription has given, by its short id.
        last: how many the topic has given.
        ready: the number of unsettled messages of each subscription.
    """
    needed = 0
    for short, count in ready.items():
        own = numbers.get(short, 0)
        # A subscription that takes one message in ten goes back ten times as far.
        needed = max(needed, count * last // own if own else 0)
    return min(needed, last)
