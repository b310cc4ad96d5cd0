"""How many messages a route may send by its rate."""

from __future__ import annotations

from math import ceil


class Allowance:
    """Fills at a rate, up to what comes in one second (one message at least).

    Args:
        rate_per_s: messages a second; `None` for any number.
    """

    def __init__(self, rate_per_s: float | None, now_ms: int) -> None:
        self._rate_per_s = rate_per_s
        self._most = max(1.0, rate_per_s or 0.0)
        self._left = self._most
        self._at_ms = now_ms

    def left(self, now_ms: int) -> int | None:
        """Return how many may be sent now; `None` for any number."""
        if self._rate_per_s is None:
            return None
        passed_ms = max(0, now_ms - self._at_ms)
        self._at_ms = max(self._at_ms, now_ms)
        self._left = min(self._most, self._left + passed_ms * self._rate_per_s / 1000)
        return int(self._left + 1e-9)

    def take(self, count: int) -> None:
        """Note that so many are sent."""
        if self._rate_per_s is not None:
            self._left -= count

    def next_ms(self) -> int:
        """Return the time at which the next one may be sent."""
        if self._rate_per_s is None or self._left >= 1:
            return self._at_ms
        return self._at_ms + ceil((1 - self._left) * 1000 / self._rate_per_s)
