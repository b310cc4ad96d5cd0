"""Work that is done once, at the end of a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Turn:
    """Collects work for the end of this turn; `run` does it at once."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def soon(self, work: Callable[[], None]) -> None:
        """Call `work` at the end of the turn."""
        if not self._due:
            # The loop is kept: `get_running_loop` makes a system call each time (Python 3.11).
            self._loop = self._loop or asyncio.get_running_loop()
            self._loop.call_soon(self.run)
        self._due.append(work)

    def run(self) -> None:
        """Do the collected work now."""
        due, self._due = self._due, []
        for work in due:
            work()
