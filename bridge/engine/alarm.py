"""A timer whose instant can be moved to an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.engine.clock import now_ms

NEVER_MS = 1 << 62

AGAIN_MS = 1_000
"""How long after a failure the callback is called again."""


class Alarm:
    """Calls back once, at or soon after the instant that it is set to.

    Args:
        on_due: the callback; it may set the alarm again.

    Attributes:
        due_ms: the instant of the next call (UTC ms), or `NEVER_MS`.
    """

    def __init__(self, on_due: Callable[[], None]) -> None:
        self.due_ms = NEVER_MS
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Alarm({self.due_ms})"

    def set(self, due_ms: int | None) -> None:
        """Call back at an instant (UTC ms), unless an earlier one is set; `None` does nothing."""
        if due_ms is None or due_ms >= self.due_ms:
            return
        self.stop()
        self.due_ms = due_ms
        delay_s = max(due_ms - now_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def stop(self) -> None:
        """Cancel the call."""
        self.due_ms = NEVER_MS
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self.stop()
        try:
            self._on_due()
        except Exception:
            self.set(now_ms() + AGAIN_MS)  # or no later instant would be set either
            raise
