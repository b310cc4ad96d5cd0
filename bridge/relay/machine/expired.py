"""Messages whose time is over by the relay's clock, until they are given back to the source."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

KEPT_MS = 5_000
"""How long each is kept: a source whose clock is behind would give it again at once, and again
until its own clock says the same."""


class ExpiredKeys:
    """Messages by their keys."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, int]] = deque()

    @property
    def due_ms(self) -> int | None:
        """When `take` is to be called; `None`: there are none."""
        return self._kept[0][0] if self._kept else None

    def keep(self, keys: Iterable[int], now_ms: int) -> None:
        """Keep messages from now on."""
        self._kept.extend((now_ms + KEPT_MS, each) for each in keys)

    def take(self, now_ms: int | None = None) -> tuple[int, ...]:
        """Return what is to be given back now; `None`: all."""
        found: list[int] = []
        while self._kept and (now_ms is None or self._kept[0][0] <= now_ms):
            found.append(self._kept.popleft()[1])
        return tuple(found)
