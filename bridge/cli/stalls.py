"""Stalls of the event loop: all clients wait while the loop stands still."""

from __future__ import annotations

import asyncio
from bisect import bisect_left

INTERVAL_S = 0.02
"""Interval of the timer. A stall is measured only as far as it outlasts the delayed timer: at most
this much is missed."""

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Stalls:
    """A timer, and statistics of its delays.

    Attributes:
        longest_s: the longest stall since the start.
        total_s: all stalls together.
        counts: stalls up to each of `BOUNDS_S`, and one more count for longer stalls.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.total_s = 0.0
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure the running loop."""
        loop = asyncio.get_running_loop()
        self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        due_s = loop.time() + INTERVAL_S
        self._handle = loop.call_at(due_s, self._on_time, loop, due_s)

    def _on_time(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        late_s = max(loop.time() - due_s, 0.0)
        self.counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.total_s += late_s
        self.longest_s = max(self.longest_s, late_s)
        self._arm(loop)

    def stop(self) -> None:
        """Stop measuring."""
        if self._handle is not None:
            self._handle.cancel()
