"""Use reports: when a bridge tells the leader of an entity that its clients use the entity.

Of a temporary entity a bridge reports at once at the first use, then once a minute at most and only
after more use, with the age of the last use. So two reports of one bridge are a minute apart, and a
use that is not reported yet is no older than a minute. Of other entities, whose last use is only
told (AccessedAt), it reports ten minutes after the first use, and every ten minutes at most.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

REPORT_MS = 60_000
"""A bridge reports a temporary entity once in this time at most."""

ACCESS_REPORT_MS = 600_000
"""A bridge reports another entity once in this time at most."""


class UseReports:
    """The uses of one queue, or of one topic and its subscriptions, by the clients of a bridge.

    Args:
        told_ms: a time that counts as that of a report; `None`: the first report is due at once.

    Attributes:
        interval_ms: the time between two reports.
    """

    def __init__(self, interval_ms: int = REPORT_MS, told_ms: int | None = None) -> None:
        self.interval_ms = interval_ms
        self._used: dict[bytes, int] = {}
        self._untold: set[bytes] = set()
        self._told_ms = told_ms

    def note(self, key: bytes, at_ms: int) -> None:
        """Note a use of an entity."""
        self._used[key] = max(at_ms, self._used.get(key, at_ms))
        self._untold.add(key)

    def keep(self, keys: Container[bytes]) -> None:
        """Forget all entities but these: the others are gone."""
        self._used = {key: at_ms for key, at_ms in self._used.items() if key in keys}
        self._untold = {key for key in self._untold if key in keys}

    @property
    def is_open(self) -> bool:
        """Whether there are uses that were not reported; a report of them is due some time."""
        return bool(self._untold)

    def is_due(self, now_ms: int) -> bool:
        """Whether a report is due."""
        if not self._untold:
            return False
        # A clock that was set back must not stop the reports.
        told_ms = self._told_ms
        return told_ms is None or not 0 <= now_ms - told_ms < self.interval_ms

    def take(self, now_ms: int) -> list[tuple[bytes, int]]:
        """Return the next report: entities, and how long ago each was used last (ms)."""
        rows = [(key, max(now_ms - self._used[key], 0)) for key in sorted(self._untold)]
        self._untold = set()
        self._told_ms = now_ms
        return rows

    def not_told(self, keys: Iterable[bytes]) -> None:
        """Make entities due again: their report has not arrived."""
        self._untold.update(keys)
        self._told_ms = None

    def used_ms(self, key: bytes) -> int:
        """Return when an entity was used last (UTC ms); 0: never."""
        return self._used.get(key, 0)

    def age_ms(self, key: bytes, now_ms: int) -> int | None:
        """Return how long ago an entity was used last; `None`: never."""
        used_ms = self._used.get(key)
        return None if used_ms is None else max(now_ms - used_ms, 0)
