"""The wall clock, in the unit that everything in Service Bus is stamped with."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the time in UTC milliseconds, rounded down: nothing that waits for it is early."""
    return time.time_ns() // 1_000_000
