"""The arrivals that a leader has not carried out yet: in order, and bounded in bytes.

RabbitMQ's prefetch counts messages, not bytes, and is fixed when a consumer starts. So a term whose
arrivals are too large ends, and the next term has a lower prefetch. When arrivals have become small
again, a term ends for a higher prefetch.
"""

from __future__ import annotations

from collections import deque

from bridge.broker.connection.delivery import Delivery

BYTES_MAX = 64 << 20
"""Bytes of waiting arrivals' bodies above which a term ends, for a lower prefetch."""

PREFETCH_MIN = 16
PREFETCH_MAX = 1_000
"""The largest prefetch of an inbox: RabbitMQ stays busy, few arrivals return after a failure, and
so many full groups of senders are no more than `BYTES_MAX`."""

_WEIGHT = 32
"""An arrival moves the average size by the difference divided by this number."""


class ArrivalBuffer:
    """The arrivals of one term, and the prefetch that suits them."""

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self._arrived: deque[Delivery] = deque()
        self._aside: deque[Delivery] = deque()
        self._brought_back = 0
        self._bytes = 0
        # A low prefetch was chosen for large arrivals; until others have come they are expected.
        self._average_bytes = BYTES_MAX // prefetch if prefetch < PREFETCH_MAX else 0

    def __len__(self) -> int:
        return len(self._arrived) + len(self._aside)

    @property
    def has_next(self) -> bool:
        """Whether there is an arrival to carry out."""
        return bool(self._arrived)

    @property
    def was_passed_over(self) -> bool:
        """Whether an arrival waits that others have passed: nothing is known of the rest then."""
        return bool(self._aside) or self._brought_back > 0

    @property
    def is_overfull(self) -> bool:
        """Whether the arrivals exceed `BYTES_MAX`, and the prefetch can be lower."""
        return self._bytes > BYTES_MAX and self.prefetch > PREFETCH_MIN

    def add(self, delivery: Delivery) -> None:
        """Add a delivery of the inbox."""
        size = len(delivery.body)
        self._arrived.append(delivery)
        self._bytes += size
        self._average_bytes += (size - self._average_bytes) // _WEIGHT

    def next(self) -> Delivery:
        """Return the oldest arrival, which stays in the buffer until `done`."""
        return self._arrived[0]

    def done(self) -> None:
        """Remove the oldest arrival."""
        self._brought_back = max(self._brought_back - 1, 0)
        self._bytes -= len(self._arrived.popleft().body)

    def set_aside(self) -> None:
        """Let the arrivals behind the oldest one pass it; it stays unacked, until `bring_back`."""
        self._brought_back = max(self._brought_back - 1, 0)
        self._aside.append(self._arrived.popleft())

    def bring_back(self) -> None:
        """Put what was set aside in front of all others again, in its order."""
        self._brought_back += len(self._aside)
        while self._aside:
            self._arrived.appendleft(self._aside.pop())

    def better_prefetch(self) -> int | None:
        """Return the prefetch for the next term; None when the present one is right."""
        if self.is_overfull:
            return _within(BYTES_MAX * len(self) // self._bytes, self.prefetch // 2)
        wanted = _within(BYTES_MAX // (self._average_bytes + 1), PREFETCH_MAX)
        return wanted if not len(self) and wanted >= 8 * self.prefetch else None


def _within(prefetch: int, most: int) -> int:
    return max(PREFETCH_MIN, min(prefetch, most))
