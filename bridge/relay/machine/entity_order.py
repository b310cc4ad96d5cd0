"""The order of an entity: which of the messages that have come may go on, and which are early.

A process that was killed, or a link that has ended, leaves messages locked that come to nobody
until their locks end; a consumer may keep one locked for longer; and a source hands out in another
order what has come back to it. What stands behind such a message would overtake it. So whoever
begins looks at what the source has, locked messages with the others, and lets nothing go that does
not come next, until any lock of an earlier process has ended. What is early is kept, and the source
is looked at again: what it does not show any more is gone, and is waited for no longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from bridge.relay.machine.lowest import PARTITION_SHIFT

CREDIT_MAX = 10_000
"""The most messages that a process may have locked."""

LOCK_MS_MAX = 300_000
"""The longest lock of a message, five minutes: LockDuration's bound (Service Bus quotas)."""

LOOK_MS = 2_000
"""How often the source is looked at while something is awaited: it may have gone."""


class EntityOrder:
    """The order of one partition: only what is of one has an order.

    Args:
        now_ms: when this process began to receive; no lock of an earlier one is younger.
        partition: see `partition_of`.
    """

    def __init__(self, now_ms: int, partition: int = 0) -> None:
        self._until_ms = now_ms + LOCK_MS_MAX
        self._expected: deque[int] = deque()
        self._known_to = partition << PARTITION_SHIFT
        self._fresh = (0, 0)
        self._fresh_until_ms = 0

    def look_from(self, numbers: Sequence[int], now_ms: int) -> int | None:
        """Return from where the source must be looked at before `take` can say something.

        Args:
            numbers: of the messages that have come and are early, in order.

        Returns:
            `None`: all is known that is needed.
        """
        expected = iter(self._expected)
        first = next(expected, None)
        for number in numbers:
            if first is not None and first < number:
                return None if self._is_fresh(first, now_ms) else first
            if first == number:
                first = next(expected, None)
            elif number >= self._known_to and now_ms < self._until_ms:
                return self._known_to
        return None

    def _is_fresh(self, number: int, now_ms: int) -> bool:
        return now_ms < self._fresh_until_ms and self._fresh[0] <= number < self._fresh[1]

    def looked(self, at: int, found: Iterable[int], to: int, now_ms: int) -> None:
        """Note which messages may yet come, in order, from where `look_from` said up to below `to`.

        What was expected there and is not found has gone: it has expired, or was received,
        deferred or dead-lettered by somebody else.
        """
        before = [each for each in self._expected if each < at]
        behind = [each for each in self._expected if each >= to]
        self._expected = deque([*before, *found, *behind])
        self._known_to = max(self._known_to, to)
        self._fresh, self._fresh_until_ms = (at, to), now_ms + LOOK_MS

    def take(self, numbers: Sequence[int], now_ms: int) -> tuple[list[int], int | None]:
        """Return the early messages that come next, in order, and what the others wait for.

        Args:
            numbers: as `look_from` was given them when it had nothing to ask.
        """
        found: list[int] = []
        for number in numbers:
            if self._expected and self._expected[0] < number:
                # What was early meanwhile may be locked, for this process too.
                self._until_ms = max(self._until_ms, now_ms + LOCK_MS_MAX)
                return found, self._expected[0]
            if self._expected and self._expected[0] == number:
                self._expected.popleft()
            self._known_to = max(self._known_to, number + 1)
            found.append(number)
        return found, None
