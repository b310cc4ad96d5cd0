"""The clock: UTC, in whole milliseconds, and calls at a later time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def now_ms() -> int:
    """Return the time now, rounded down, so that no timer fires early."""
    return time.time_ns() // 1_000_000


def later(wait_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    """Call a function after some seconds."""
    return asyncio.get_running_loop().call_later(wait_s, call)
