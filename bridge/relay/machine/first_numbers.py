"""The first messages of a route that keeps an entity's order: nothing may be locked before them.

A process that was killed, or a link that has ended, leaves messages locked that come to nobody
until their locks end; what stands behind them would overtake them. So whoever begins looks at what
the source has, locked messages with the others, and takes nothing that does not come next, until
any lock of an earlier process has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from bridge.relay.machine.lowest import PARTITION_SHIFT

CREDIT_MAX = 10_000
"""The most messages that a process may have locked."""

LOCK_MS_MAX = 300_000
"""The longest lock of a message, five minutes: LockDuration's bound (Service Bus quotas)."""


class FirstNumbers:
    """What must come next of a partition: only what is of one has an order.

    Args:
        now_ms: when this process began to receive; no lock is older.
        partition: see `partition_of`.
    """

    def __init__(self, now_ms: int, partition: int = 0) -> None:
        self._until_ms = now_ms + LOCK_MS_MAX
        self._expected: deque[int] = deque()
        self._known_to = partition << PARTITION_SHIFT

    def look_from(self, number: int, now_ms: int) -> int | None:
        """Return from where the source must be looked at before a message can be taken.

        `None`: what stands before it is known, and that it has come.
        """
        if now_ms >= self._until_ms:
            self._expected.clear()
            return None
        if self._expected:
            # What was expected may have gone meanwhile: expired, or received by somebody else.
            return self._expected[0] if number > self._expected[0] else None
        return self._known_to if number >= self._known_to else None

    def looked(self, numbers: Iterable[int], to: int) -> None:
        """Note the active messages, in order, from where `look_from` said up to below `to`."""
        self._expected = deque(numbers)
        self._known_to = max(self._known_to, to)

    def missing(self, number: int) -> int | None:
        """Take the next message; return the number that should have come before it, if any."""
        if not self._expected:
            return None
        expected = self._expected[0]
        if number == expected:
            self._expected.popleft()
        return expected if number > expected else None
