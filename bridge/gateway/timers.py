"""The timers of one connection, each known by what it is for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timers:
    """At most one timer for each purpose: setting it again moves it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def set(self, purpose: str, delay_s: float, callback: Callable[[], object]) -> None:
        """Call something after a while, instead of what was set for this purpose."""
        self.cancel(purpose)
        self._handles[purpose] = self._loop.call_later(delay_s, callback)

    def cancel(self, purpose: str) -> None:
        """Do not call it, if it was set."""
        handle = self._handles.pop(purpose, None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        """Call nothing any more."""
        for purpose in list(self._handles):
            self.cancel(purpose)
