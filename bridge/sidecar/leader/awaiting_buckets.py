"""The work that waits for buckets which are not made yet; nothing else of the entity waits.

Making a bucket takes half a dozen round trips to RabbitMQ. So work that needs a bucket is put
aside. It goes on when the bucket is made, or at its own time, whichever comes first: a message that
is due needs no bucket.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable

from bridge.background.waits import Wait, Waits
from bridge.machine.inbox.wheel import BucketKey
from bridge.topology import names

_PACK_MIN = 64


Work = Callable[[], None]

BYTES_MAX = 32 << 20
"""Bytes of waiting messages up to which the next one, of any size, is put aside."""


class _Bucket:
    """A bucket that is not made yet, and the work that waits for it, with its size in bytes."""

    __slots__ = ("wait", "work")

    def __init__(self, wait: Wait) -> None:
        self.wait = wait
        self.work: dict[int, tuple[Work, int]] = {}


class AwaitingBuckets:
    """The work of one entity that waits for buckets.

    Args:
        entity: the entity's path.
        waits: takes note of what waits, for health.
        on_wanted: called when another bucket is wanted.

    Attributes:
        ready: the work that can go on.
    """

    def __init__(self, entity: str, waits: Waits, on_wanted: Callable[[], None]) -> None:
        self.ready: deque[Work] = deque()
        self._entity = entity
        self._waits = waits
        self._on_wanted = on_wanted
        self._buckets: dict[BucketKey, _Bucket] = {}
        self._times: list[tuple[int, int, BucketKey]] = []
        self._serials = itertools.count()
        self._count = 0
        self._bytes = 0

    @property
    def wanted(self) -> list[BucketKey]:
        """The buckets that are waited for."""
        return list(self._buckets)

    @property
    def has_room(self) -> bool:
        """Whether more may be put aside, rather than stay where it is."""
        return self._bytes < BYTES_MAX

    @property
    def next_ms(self) -> int | None:
        """The earliest time at which work goes on without its bucket, or `None`."""
        return self._times[0][0] if self._buckets else None

    def add(self, where: BucketKey, until_ms: int, work: Work, size_bytes: int) -> None:
        """Have work on a message wait for a bucket, and no longer than `until_ms`."""
        bucket = self._buckets.get(where)
        if bucket is None:
            queue = names.bucket(self._entity, where.level, where.slot)
            reason = f"the queue {queue!r} of scheduled messages is being made"
            bucket = self._buckets[where] = _Bucket(self._waits.begin(self._entity, reason))
            self._on_wanted()
        serial = next(self._serials)
        bucket.work[serial] = work, size_bytes
        heapq.heappush(self._times, (until_ms, serial, where))
        self._count += 1
        self._bytes += size_bytes

    def made(self, where: BucketKey) -> None:
        """Let the work go on that waits for a bucket."""
        bucket = self._buckets.pop(where, None)
        if bucket is None:
            return
        bucket.wait.end()
        for each in bucket.work.values():
            self._let_go(*each)
        if not self._count or len(self._times) > _PACK_MIN + 2 * self._count:
            self._times = [each for each in self._times if self._is_waiting(each)]
            heapq.heapify(self._times)

    def look(self, now_ms: int) -> None:
        """Let the work go on whose own time has come."""
        while self._times and self._times[0][0] <= now_ms:
            _, serial, where = heapq.heappop(self._times)
            bucket = self._buckets.get(where)
            if bucket is None or serial not in bucket.work:
                continue
            self._let_go(*bucket.work.pop(serial))
            if not bucket.work:
                bucket.wait.end()
                del self._buckets[where]

    def close(self) -> None:
        """Forget all work."""
        for bucket in self._buckets.values():
            bucket.wait.end()
        self._buckets.clear()
        self._times.clear()
        self.ready.clear()
        self._count = self._bytes = 0

    def _let_go(self, work: Work, size_bytes: int) -> None:
        self.ready.append(work)
        self._count -= 1
        self._bytes -= size_bytes

    def _is_waiting(self, time: tuple[int, int, BucketKey]) -> bool:
        bucket = self._buckets.get(time[2])
        return bucket is not None and time[1] in bucket.work
