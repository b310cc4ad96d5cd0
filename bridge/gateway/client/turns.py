"""Fair scheduling of client input: each connection is processed in its turn."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

QUANTUM_S = 0.002
"""How long one connection is processed while others wait."""

IDLE_S = 0.05
"""Time after a budget's end at which a new budget begins: by then the loop is in another turn, or
has stood still for longer than another budget could cause."""


class HasInput(Protocol):
    """A connection with input to process."""

    def advance(self, now_s: float, until_s: float) -> bool:
        """Process input until a time of the loop's clock.

        Returns whether no input is left that may be processed.
        """


class Turns:
    """A scheduler that bounds the processing time of all connections' input in one loop turn.

    The rest of the input waits for the next turn, in the order in which the connections began to
    wait. A new budget is scheduled only when half of the current budget is used, not in each turn:
    most turns need no callback for a new budget.

    Args:
        budget_s: processing time of all connections together in one turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, budget_s: float) -> None:
        self._loop = loop
        self._budget_s = budget_s
        self._waiting: deque[HasInput] = deque()
        self._deadline_s = 0.0
        self._is_next_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, connection: HasInput) -> bool:
        """Process a connection's input at once, if there is time; return whether none is left."""
        now_s = self._loop.time()
        if now_s >= self._deadline_s + IDLE_S:
            self._deadline_s = now_s + self._budget_s
        if self._waiting or now_s >= self._deadline_s:
            self._wait(connection)
            return False
        if now_s >= self._deadline_s - self._budget_s / 2:
            self._call_next()
        is_done = connection.advance(now_s, self._deadline_s)
        if not is_done:
            self._wait(connection)
        return is_done

    def _wait(self, connection: HasInput) -> None:
        self._waiting.append(connection)
        self._call_next()

    def _call_next(self) -> None:
        if not self._is_next_due:
            self._is_next_due = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_next_due = False
        now_s = self._loop.time()
        self._deadline_s = now_s + self._budget_s
        while self._waiting and now_s < self._deadline_s:
            connection = self._waiting.popleft()
            if not connection.advance(now_s, min(self._deadline_s, now_s + QUANTUM_S)):
                self._wait(connection)
            now_s = self._loop.time()
        if self._waiting:
            self._call_next()
