"""When the locks of messages in hand are to be renewed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

RENEWED_AFTER = 0.5
"""The part of a lock's time after which it is renewed."""

AGAIN_MS = 2_000
AGAIN_MS_MIN = 200
"""The longest and the shortest wait before a renewal that has failed is made again."""

TOGETHER_MS = 1_000
"""Locks that are due within this time are renewed together."""


MARGIN_MS = 2_000
MARGIN = 0.2
"""So long before its end, or so much of its time if that is less, a lock is given up."""


def given_up_after_ms(lock_ms: int) -> int:
    """Return after what time a lock is given up that is not renewed."""
    return lock_ms - min(MARGIN_MS, int(MARGIN * lock_ms))


def again_at_ms(ends_ms: int, now_ms: int) -> int:
    """Return when a renewal that has failed is made again; a lock that is short has a second, too.

    Args:
        ends_ms: when the lock is given up.
    """
    wait_ms = max(AGAIN_MS_MIN, min(AGAIN_MS, (ends_ms - now_ms) // 2))
    return min(now_ms + wait_ms, ends_ms)


class Renewals:
    """Messages with locks, by their keys.

    Attributes:
        due_ms: when `take` is to be called; `None`: nothing is to be renewed.
        ended: those whose locks were not renewed in time, or are lost, until they are forgotten.
    """

    def __init__(self) -> None:
        self.due_ms: int | None = None
        self.ended: set[int] = set()
        self._due_ms: dict[int, int] = {}
        self._ends_ms: dict[int, int] = {}

    def locked(self, keys: Iterable[int], lock_ms: int, now_ms: int) -> None:
        """Note that messages are locked for so long from now on."""
        ends_ms = now_ms + given_up_after_ms(lock_ms)
        for each in keys:
            self.ended.discard(each)
            self._ends_ms[each] = ends_ms
            self._put(each, now_ms + int(RENEWED_AFTER * lock_ms))

    def failed(self, keys: Iterable[int], now_ms: int) -> None:
        """Note that a renewal was not answered."""
        for each in keys:
            if (ends_ms := self._ends_ms.get(each)) is not None:
                self._put(each, again_at_ms(ends_ms, now_ms))

    def _put(self, key: int, due_ms: int) -> None:
        self._due_ms[key] = due_ms
        if self.due_ms is None or due_ms < self.due_ms:
            self.due_ms = due_ms

    def forget(self, keys: Iterable[int]) -> None:
        """Renew locks no more."""
        for each in keys:
            self._due_ms.pop(each, None)
            self._ends_ms.pop(each, None)
            self.ended.discard(each)

    def lost(self, keys: Collection[int]) -> None:
        """Note that messages are not locked any more; they are not renewed any more either."""
        self.forget(keys)
        self.ended.update(keys)

    def take(self, now_ms: int) -> tuple[int, ...]:
        """Return what is to be renewed now; each comes again when it is told of, or at its end."""
        if self.due_ms is None or now_ms < self.due_ms:
            return ()
        found: list[int] = []
        for key, due_ms in self._due_ms.items():
            ends_ms = self._ends_ms[key]
            if due_ms <= now_ms + (TOGETHER_MS if due_ms < ends_ms else 0):
                found.append(key)
        for each in found:
            if self._due_ms[each] < self._ends_ms[each]:
                self._due_ms[each] = self._ends_ms[each]
            else:
                del self._due_ms[each]
        self.due_ms = min(self._due_ms.values(), default=None)
        return tuple(found)

    def over(self, now_ms: int) -> tuple[int, ...]:
        """Return what was not renewed in time; it is not renewed any more."""
        if self.due_ms is None or now_ms < self.due_ms:
            return ()
        found = tuple(key for key, ends_ms in self._ends_ms.items() if ends_ms <= now_ms)
        self.lost(found)
        return found
