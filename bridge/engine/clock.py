"""The clock: UTC, in whole milliseconds."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the time now, rounded down, so that no timer fires early."""
    return time.time_ns() // 1_000_000
