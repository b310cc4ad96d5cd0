"""The timers of one connection, by purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timers:
    """At most one timer for each purpose: a new timer replaces the earlier."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def set(self, purpose: str, delay_s: float, callback: Callable[[], object]) -> None:
        """Call a callback after a delay, in place of the purpose's earlier timer."""
        self.cancel(purpose)
        self._handles[purpose] = self._loop.call_later(delay_s, callback)

    def cancel(self, purpose: str) -> None:
        """Cancel the timer of a purpose, if set."""
        handle = self._handles.pop(purpose, None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        """Cancel all timers."""
        for purpose in list(self._handles):
            self.cancel(purpose)
