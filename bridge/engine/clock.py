"""What time it is: UTC, in whole milliseconds."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the time now, rounded down: nothing that waits for it is early."""
    return time.time_ns() // 1_000_000
