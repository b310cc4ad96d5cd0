"""What is done once at the end of a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Turn:
    """Collects work for the end of this turn; who cannot wait runs it at once."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def soon(self, work: Callable[[], None]) -> None:
        """Do this at the end of the turn."""
        if not self._due:
            # Asked for once: each time it is a system call (Python 3.11).
            self._loop = self._loop or asyncio.get_running_loop()
            self._loop.call_soon(self.run)
        self._due.append(work)

    def run(self) -> None:
        """Do what has been collected."""
        due, self._due = self._due, []
        for work in due:
            work()


class Wake:
    """Has one thing done at the end of this turn, or when its time has come.

    Args:
        act: what is done; it sets `is_due` back.

    Attributes:
        is_due: it will be done at the end of this turn.
    """

    def __init__(self, turn: Turn, act: Callable[[], None]) -> None:
        self.is_due = False
        self._turn = turn
        self._act = act
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    def soon(self) -> None:
        """Have it done at the end of this turn."""
        if not self.is_due:
            self.is_due = True
            self._turn.soon(self._act)

    def at(self, due_s: float) -> None:
        """Have it done at a time of the loop's clock, if not before."""
        if self._timer is not None:
            if self._timer_s <= due_s:
                return
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = self._loop.call_at(due_s, self._on_timer)

    def close(self) -> None:
        """Do it at no later time."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer = None
        self.soon()
