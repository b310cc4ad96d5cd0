"""A timer whose instant can be moved to an earlier one."""

from __future__ import annotations

from collections.abc import Callable

from bridge.message.wake import Timer

NEVER_MS = 1 << 62

AGAIN_MS = 1_000
"""How long after a failure the callback is called again."""


Later = Callable[[float, Callable[[], None]], Timer]
"""Calls a function after some seconds."""


class Alarm:
    """Calls back once, at or soon after the instant that it is set to.

    Args:
        on_due: the callback; it may set the alarm again.
        now_ms: returns UTC, ms.
        later: calls a function after some seconds.

    Attributes:
        due_ms: the instant of the next call (UTC ms), or `NEVER_MS`.
    """

    def __init__(
        self, on_due: Callable[[], None], *, now_ms: Callable[[], int], later: Later
    ) -> None:
        self.due_ms = NEVER_MS
        self._on_due = on_due
        self._now_ms = now_ms
        self._later = later
        self._timer: Timer | None = None

    def __repr__(self) -> str:
        return f"Alarm({self.due_ms})"

    def set(self, due_ms: int | None) -> None:
        """Call back at an instant (UTC ms), unless an earlier one is set; `None` does nothing."""
        if due_ms is None or due_ms >= self.due_ms:
            return
        self.stop()
        self.due_ms = due_ms
        self._timer = self._later(max(due_ms - self._now_ms(), 0) / 1000, self._ring)

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
            self.set(self._now_ms() + AGAIN_MS)  # or no later instant would be set either
            raise
