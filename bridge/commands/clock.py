"""The time by this machine's clock."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the time, UTC ms."""
    return time.time_ns() // 1_000_000
