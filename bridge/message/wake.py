"""One function that is called at the end of a turn, or at a set time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call at a later time."""

    def cancel(self) -> object:
        """Drop the call."""


class Wake:
    """Calls one function.

    Args:
        soon: calls a function at the end of this turn.
        at: calls a function at a time of the caller's clock.
        act: the function; it must set `is_due` to `False`.

    Attributes:
        is_due: whether the function will be called at the end of this turn.
        due_s: the set time, or infinity.
    """

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], None],
        at: Callable[[float, Callable[[], None]], Timer],
        act: Callable[[], None],
    ) -> None:
        self.is_due = False
        self.due_s = math.inf
        self._soon = soon
        self._at = at
        self._act = act
        self._timer: Timer | None = None

    def soon(self) -> None:
        """Call the function at the end of this turn."""
        if not self.is_due:
            self.is_due = True
            self._soon(self._act)

    def at(self, due_s: float) -> None:
        """Call the function at a time, and no more at the time that is set."""
        if self._timer is not None:
            self._timer.cancel()
        self.due_s = due_s
        self._timer = self._at(due_s, self._on_timer)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.due_s = math.inf

    def _on_timer(self) -> None:
        self._timer = None
        self.due_s = math.inf
        self.soon()
