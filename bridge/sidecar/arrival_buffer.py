"""What has arrived and is not carried out yet: in order, and bounded in bytes.

RabbitMQ bounds what it sends ahead by messages, not by bytes, and only for a consumer that begins.
So a term whose arrivals are too large ends, and the next one has fewer sent ahead; and the other
way round, when they have become small again.
"""

from __future__ import annotations

from collections import deque

from bridge.broker.connection.delivery import Delivery

BYTES_MAX = 64 << 20
"""Bodies of arrivals that one entity may keep waiting here."""

PREFETCH_MIN = 16
PREFETCH_MAX = 4_000
"""Arrivals that may be unacked: enough to keep RabbitMQ busy, few enough for a short tail."""

_WEIGHT = 32
"""One arrival's share in the average, its inverse."""


class ArrivalBuffer:
    """The arrivals of one term."""

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self._arrived: deque[Delivery] = deque()
        self._bytes = 0
        self._average_bytes = 0

    def __len__(self) -> int:
        return len(self._arrived)

    @property
    def is_overfull(self) -> bool:
        """Whether more has arrived than may be kept, and fewer arrivals would help."""
        return self._bytes > BYTES_MAX and self.prefetch > PREFETCH_MIN

    def add(self, delivery: Delivery) -> None:
        """Take in what RabbitMQ delivered."""
        size = len(delivery.body)
        self._arrived.append(delivery)
        self._bytes += size
        self._average_bytes += (size - self._average_bytes) // _WEIGHT

    def next(self) -> Delivery:
        """Return the oldest, which stays until it is `done`."""
        return self._arrived[0]

    def done(self) -> None:
        """Take out the oldest."""
        self._bytes -= len(self._arrived.popleft().body)

    def better_prefetch(self) -> int | None:
        """Return the number of arrivals that should be sent ahead; `None` when it is right."""
        if self.is_overfull:
            return _within(BYTES_MAX * len(self._arrived) // self._bytes, self.prefetch // 2)
        wanted = _within(BYTES_MAX // (self._average_bytes + 1), PREFETCH_MAX)
        return wanted if not self._arrived and wanted >= 8 * self.prefetch else None


def _within(prefetch: int, most: int) -> int:
    return max(PREFETCH_MIN, min(prefetch, most))
