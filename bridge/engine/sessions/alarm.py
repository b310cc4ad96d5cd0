"""A call at an instant that may become an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.engine.clock import now_ms


class Alarm:
    """Calls back once at or soon after the instant that it is set to.

    Args:
        on_due: called then; it may set the alarm again.
    """

    def __init__(self, on_due: Callable[[], None]) -> None:
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def __repr__(self) -> str:
        return f"Alarm({self._due_ms if self._timer is not None else None})"

    def set(self, due_ms: int | None) -> None:
        """Call back at this instant (UTC ms), unless that is to happen earlier."""
        if due_ms is None:
            return
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._loop.call_later(max(due_ms - now_ms(), 0) / 1000, self._ring)

    def stop(self) -> None:
        """Call back no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._on_due()
