"""Peek-locks as a pure machine: token to held message, and the end of each lock.

A lock is held from `acquire` until the first of: `release` (the message is settled), `expire` (its
instant has come), `lose` (RabbitMQ has taken the message back, or is about to). "Renewal restarts
LockDuration from now; any number of renewals" (Service Bus, message transfers, locks and
settlement). A lock never outlives its instant: from `until_ms` on its token is unknown, whether or
not `expire` has run.

A transaction may pin a lock: from `pin` to `unpin` time does not end it, and `release` does not
give it to anybody; only `take_pinned` and `lose` do. It goes on with the time that it had left.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

Held = TypeVar("Held")

_SLACK = 64
"""Entries of the heap that may be stale before the heap is rebuilt."""

LEFT_MIN_MS: Final = 1_000
"""So much time an unpinned lock has at least: a client that rolls back may settle it right then."""

_NEVER_MS: Final = 1 << 62


class Lock(Generic[Held]):
    """One lock: the held message, its order, and the instant at which the lock ends (UTC ms).

    Attributes:
        left_ms: while it is pinned, the time that it had left; else -1.
    """

    __slots__ = ("held", "left_ms", "order", "until_ms")

    def __init__(self, held: Held, order: int, until_ms: int) -> None:
        self.held = held
        self.order = order
        self.until_ms = until_ms
        self.left_ms = -1

    @property
    def is_pinned(self) -> bool:
        """Whether a transaction keeps it."""
        return self.left_ms >= 0

    def unpin(self, now_ms: int) -> None:
        """Go on with the time that was left."""
        self.until_ms = now_ms + max(self.left_ms, LEFT_MIN_MS)
        self.left_ms = -1


class Locks(Generic[Held]):
    """All locks of one process, by token; the earliest end is found at once."""

    def __init__(self) -> None:
        self._locks: dict[bytes, Lock[Held]] = {}
        self._ends: list[tuple[int, int, bytes]] = []

    def __len__(self) -> int:
        return len(self._locks)

    def __repr__(self) -> str:
        return f"Locks(held={len(self._locks)}, next_end_ms={self.next_end_ms()})"

    def acquire(
        self, token: bytes, held: Held, *, order: int, duration_ms: int, now_ms: int
    ) -> int:
        """Lock `held` under a new token; return the lock's end (UTC ms).

        Args:
            order: the message's place among those whose locks end together: its number.
        """
        assert token not in self._locks, "a token names one lock"
        return self._hold(token, Lock(held, order, now_ms + duration_ms))

    def renew(self, token: bytes, *, duration_ms: int, now_ms: int) -> int | None:
        """Return the new end (the full duration from now), or `None` if the lock has ended.

        The duration is the entity's present one, which may have changed since the lock was taken.
        """
        lock = self._live(token, now_ms)
        if lock is None:
            return None
        if lock.is_pinned:
            lock.left_ms = duration_ms
            return now_ms + duration_ms
        lock.until_ms = now_ms + duration_ms
        return self._hold(token, lock)

    def find(self, token: bytes, *, now_ms: int) -> Held | None:
        """Return the message under the token, or `None` if the lock has ended."""
        lock = self._live(token, now_ms)
        return None if lock is None else lock.held

    def release(self, token: bytes, *, now_ms: int) -> Lock[Held] | None:
        """End the lock; return it, or `None` if the lock has ended already, or is pinned."""
        lock = self._live(token, now_ms)
        if lock is None or lock.left_ms >= 0:  # without a call: it is done for each message
            return None
        del self._locks[token]
        return lock

    def pin(self, token: bytes, *, now_ms: int) -> Held | None:
        """Keep a lock beyond its time; return its message.

        `None`: the lock has ended, or is pinned already.
        """
        lock = self._live(token, now_ms)
        if lock is None or lock.is_pinned:
            return None
        lock.left_ms = lock.until_ms - now_ms
        lock.until_ms = _NEVER_MS
        return lock.held

    def unpin(self, token: bytes, *, now_ms: int) -> int | None:
        """Let a pinned lock go on; return its end (UTC ms), or `None` if it was lost."""
        lock = self._locks.get(token)
        if lock is None or not lock.is_pinned:
            return None
        lock.unpin(now_ms)
        return self._hold(token, lock)

    def take_pinned(self, token: bytes) -> Lock[Held] | None:
        """End a pinned lock, and return it; `None` if it was lost."""
        lock = self._locks.get(token)
        if lock is None or not lock.is_pinned:
            return None
        del self._locks[token]
        return lock

    def restore(self, token: bytes, lock: Lock[Held]) -> None:
        """Put a lock back unchanged after a failed settlement; the lock may expire at once."""
        assert token not in self._locks, "only a lock that was taken off can be put back"
        self._hold(token, lock)

    def expire(self, now_ms: int) -> list[Held]:
        """End all locks whose instant has come; return their messages in order.

        RabbitMQ keeps returned messages in the order in which they come back.
        """
        ended: list[Lock[Held]] = []
        while self._ends and self._ends[0][0] <= now_ms:
            until_ms, _, token = heapq.heappop(self._ends)
            lock = self._locks.get(token)
            if lock is not None and lock.until_ms == until_ms:
                del self._locks[token]
                ended.append(lock)
        return _in_order(ended)

    def lose(self, is_lost: Callable[[Held], bool]) -> list[Held]:
        """End locks before their instants; return their messages in order."""
        tokens = [token for token, lock in self._locks.items() if is_lost(lock.held)]
        return _in_order([self._locks.pop(token) for token in tokens])

    def held(self, now_ms: int) -> Iterator[Held]:
        """Yield the messages of all locks that have not ended."""
        return (lock.held for lock in self._locks.values() if now_ms < lock.until_ms)

    def next_end_ms(self) -> int | None:
        """Return the earliest end of a lock; `None` when there is no lock."""
        while self._ends:
            until_ms, _, token = self._ends[0]
            lock = self._locks.get(token)
            if lock is not None and lock.until_ms == until_ms:
                return until_ms
            heapq.heappop(self._ends)
        return None

    def _live(self, token: bytes, now_ms: int) -> Lock[Held] | None:
        lock = self._locks.get(token)
        return lock if lock is not None and now_ms < lock.until_ms else None

    def _hold(self, token: bytes, lock: Lock[Held]) -> int:
        self._locks[token] = lock
        if lock.left_ms >= 0:
            return lock.until_ms
        if len(self._ends) > 2 * len(self._locks) + _SLACK:
            self._ends = [
                (held.until_ms, held.order, each)
                for each, held in self._locks.items()
                if not held.is_pinned
            ]
            heapq.heapify(self._ends)
        else:
            heapq.heappush(self._ends, (lock.until_ms, lock.order, token))
        return lock.until_ms


def _in_order(ended: list[Lock[Held]]) -> list[Held]:
    return [lock.held for lock in sorted(ended, key=_order)]


def _order(lock: Lock[Held]) -> int:
    return lock.order
