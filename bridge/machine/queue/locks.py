"""Peek-locks as a pure machine: token to held message, and the end of each lock.

A lock is held from `acquire` until the first of: `release` (the message is settled), `expire` (its
instant has come), `lose` (RabbitMQ has taken the message back, or is about to). "Renewal restarts
LockDuration from now; any number of renewals" (Service Bus, message transfers, locks and
settlement). A lock never outlives its instant: from `until_ms` on its token is unknown, whether or
not `expire` has run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Held = TypeVar("Held")

_SLACK = 64
"""Entries of the heap that may be stale before the heap is rebuilt."""


class Lock(Generic[Held]):
    """One lock: the held message, its order, and the instant at which the lock ends (UTC ms)."""

    __slots__ = ("held", "order", "until_ms")

    def __init__(self, held: Held, order: int, until_ms: int) -> None:
        self.held = held
        self.order = order
        self.until_ms = until_ms


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
        lock.until_ms = now_ms + duration_ms
        return self._hold(token, lock)

    def find(self, token: bytes, *, now_ms: int) -> Held | None:
        """Return the message under the token, or `None` if the lock has ended."""
        lock = self._live(token, now_ms)
        return None if lock is None else lock.held

    def release(self, token: bytes, *, now_ms: int) -> Lock[Held] | None:
        """End the lock; return it, or `None` if the lock has ended already."""
        lock = self._live(token, now_ms)
        if lock is not None:
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
        if len(self._ends) > 2 * len(self._locks) + _SLACK:
            self._ends = [(held.until_ms, held.order, each) for each, held in self._locks.items()]
            heapq.heapify(self._ends)
        else:
            heapq.heappush(self._ends, (lock.until_ms, lock.order, token))
        return lock.until_ms


def _in_order(ended: list[Lock[Held]]) -> list[Held]:
    return [lock.held for lock in sorted(ended, key=_order)]


def _order(lock: Lock[Held]) -> int:
    return lock.order
