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


class Wake:
    """Calls one function at the end of this turn, or at a set time.

    Args:
        act: the function; it must set `is_due` to `False`.

    Attributes:
        is_due: whether the function will be called at the end of this turn.
    """

    def __init__(self, turn: Turn, act: Callable[[], None]) -> None:
        self.is_due = False
        self._turn = turn
        self._act = act
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    def soon(self) -> None:
        """Call the function at the end of this turn."""
        if not self.is_due:
            self.is_due = True
            self._turn.soon(self._act)

    def at(self, due_s: float) -> None:
        """Call the function at a time of the loop's clock, unless an earlier time is set."""
        if self._timer is not None:
            if self._timer_s <= due_s:
                return
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = self._loop.call_at(due_s, self._on_timer)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer = None
        self.soon()
