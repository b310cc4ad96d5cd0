"""The timing wheel: which bucket a scheduled message waits in, and when a bucket opens and ends.

A bucket is a queue that holds the messages of one interval. The finest buckets are 2 s wide; each
level above is 64 times as wide. A message goes to the finest level whose 64 buckets reach as far as
its time, so the number of queues depends on how far ahead clients schedule and never on the number
of waiting messages:

    level      0       1        2        3         4         5
    width     2 s     128 s    2.3 h    6.1 days  1.06 a    68 a

A bucket **opens** some seconds before its interval begins, earlier when it holds many messages:
then its messages are consumed. Messages of a coarse bucket move to finer buckets; messages of the
finest are held, unacked, until their millisecond. A bucket is **over** when its interval is; when
it is empty then, it is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

FINEST_MS = 2_000
FACTOR = 64
LEVELS = 6
WIDTHS_MS: tuple[int, ...] = tuple(FINEST_MS * FACTOR**level for level in range(LEVELS))

LEAD_MS = 3_000
COARSE_LEAD_MS = 10_000
"""A bucket opens at least so long before its interval: consuming takes milliseconds, making finer
buckets takes seconds, and so does a broker's restart."""

HOLD_RATE_PER_S = 10_000
MOVE_RATE_PER_S = 2_500
"""Rate at which messages are surely consumed, or moved to a finer bucket."""

GRACE_MS = 3_000
"""How long after its end a bucket is kept, for messages still on their way."""


class BucketKey(NamedTuple):
    """A bucket: slot `slot` of level `level` covers `slot * width` to `(slot + 1) * width`."""

    level: int
    slot: int

    @property
    def start_ms(self) -> int:
        """The beginning of the interval."""
        return self.slot * WIDTHS_MS[self.level]

    @property
    def end_ms(self) -> int:
        """The end of the interval."""
        return (self.slot + 1) * WIDTHS_MS[self.level]


def place(due_ms: int, now_ms: int, *, below: int = LEVELS) -> BucketKey:
    """Return the bucket for a message that is due at `due_ms`, on a level below `below`."""
    due_ms = max(due_ms, now_ms)
    level = 0
    while level < below - 1 and due_ms - now_ms >= WIDTHS_MS[level] * FACTOR:
        level += 1
    return BucketKey(level, due_ms // WIDTHS_MS[level])


@dataclass(slots=True)
class Bucket:
    """A live bucket.

    Attributes:
        place: level and slot.
        count: messages in it, about.
        is_open: the bucket is being consumed, or was.
        is_provisional: the journal calls the bucket provisional: its queue is being made or
            removed, and holds no message.
        is_usable: messages can be stored in it: RabbitMQ has confirmed the note that calls the
            bucket safe, and so the queue outlasts a kill of RabbitMQ.
    """

    place: BucketKey
    count: int = 0
    is_open: bool = False
    is_provisional: bool = False
    is_usable: bool = True

    @property
    def opens_ms(self) -> int:
        """The time at which the bucket must be opened."""
        if self.place.level:
            return self.place.start_ms - COARSE_LEAD_MS - self.count * 1000 // MOVE_RATE_PER_S
        return self.place.start_ms - LEAD_MS - self.count * 1000 // HOLD_RATE_PER_S

    @property
    def ends_ms(self) -> int:
        """The time at which the bucket can be removed."""
        return self.place.end_ms + GRACE_MS


class Wheel:
    """The live buckets of one entity."""

    def __init__(self) -> None:
        self.buckets: dict[BucketKey, Bucket] = {}

    def is_usable(self, where: BucketKey) -> bool:
        """Whether messages can be stored in a bucket."""
        bucket = self.buckets.get(where)
        return bucket is not None and bucket.is_usable

    def add(self, made: BucketKey, *, is_provisional: bool = False) -> Bucket:
        """Add a bucket as the journal knows it, or change it."""
        bucket = self.buckets.setdefault(made, Bucket(made))
        bucket.is_provisional = is_provisional
        bucket.is_usable = not is_provisional
        return bucket

    def remove(self, gone: BucketKey) -> None:
        """Forget a bucket that was removed."""
        self.buckets.pop(gone, None)

    def stored(self, where: BucketKey) -> None:
        """Count a message into a bucket."""
        self.buckets[where].count += 1

    def left(self, where: BucketKey) -> None:
        """Count a message out of a bucket."""
        bucket = self.buckets.get(where)
        if bucket is not None and bucket.count > 0:
            bucket.count -= 1

    def to_open(self, now_ms: int) -> list[Bucket]:
        """Return the buckets whose messages are needed now, the earliest first."""
        return sorted(
            (each for each in self._closed() if each.opens_ms <= now_ms),
            key=lambda each: each.place.start_ms,
        )

    def to_end(self, now_ms: int) -> list[Bucket]:
        """Return the open buckets whose interval is over."""
        return [each for each in self.buckets.values() if each.is_open and each.ends_ms <= now_ms]

    def next_opens_ms(self) -> int | None:
        """Return the earliest time at which a bucket opens, or `None`."""
        return min((each.opens_ms for each in self._closed()), default=None)

    def next_ends_ms(self) -> int | None:
        """Return the earliest time at which an open bucket ends, or `None`."""
        ends = (each.ends_ms for each in self.buckets.values() if each.is_open)
        return min(ends, default=None)

    def _closed(self) -> Iterator[Bucket]:
        return (each for each in self.buckets.values() if each.is_usable and not each.is_open)
