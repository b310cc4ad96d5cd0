"""The lowest number that may come again from a source: what a target may forget.

A target remembers what it has taken of a source, so that what comes twice is numbered once. It may
forget what is below the lowest number that can still come. The relay knows that number by looking
at the source's messages, and tells it only after a while: bytes that a process has sent before it
was killed may be under way to the target for so long.

A source that was deleted and made anew counts from 1 again. What was seen before says nothing of
it: that is forgotten as soon as a lower number is seen or received.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

PARTITION_SHIFT = 48
"""A sequence number's partition is in its highest 16 bits (Azure's partitioned entities)."""

OBSERVATIONS_MAX = 1_000


def partition_of(number: int) -> int:
    """Return the partition that a sequence number is of."""
    return number >> PARTITION_SHIFT


class Lowest:
    """What one process knows of one partition of a source.

    Args:
        partition: see `partition_of`.
        lag_ms: how old an observation is before it is told.
    """

    def __init__(self, partition: int, lag_ms: int) -> None:
        self._lag_ms = lag_ms
        self._first = self._told = partition << PARTITION_SHIFT
        self._observed: deque[tuple[int, int]] = deque()

    def observe(self, number: int, now_ms: int) -> None:
        """Note the lowest number of the source's active messages, locked ones with them."""
        if number < self._told:
            self._begin_anew()
        if self._observed and self._observed[-1][1] == number:
            return
        while self._observed and self._observed[-1][1] > number:
            self._observed.pop()  # a message has come back: what was seen meanwhile is no bound
        if len(self._observed) < OBSERVATIONS_MAX:
            self._observed.append((now_ms, number))

    def told(self, held: Iterable[int], now_ms: int) -> int:
        """Return what may be told now; it falls when the source was made anew, and else never.

        Args:
            held: numbers of this partition that this process has received and not completed.
        """
        lowest_held = min(held, default=None)
        if lowest_held is not None and lowest_held < self._told:
            self._begin_anew()
        ripe = self._told
        while self._observed and self._observed[0][0] <= now_ms - self._lag_ms:
            ripe = max(ripe, self._observed.popleft()[1])
        if ripe > self._told:
            bound = ripe if lowest_held is None else lowest_held
            self._told = max(self._told, min(ripe, bound))
            if bound < ripe:
                self._observed.appendleft((now_ms - self._lag_ms, ripe))
        return self._told

    def _begin_anew(self) -> None:
        self._told = self._first
        self._observed.clear()
