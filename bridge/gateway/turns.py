"""Whose bytes are acted upon when much has come at once: each connection in its turn."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.gateway.reader import Reader

QUANTUM_S = 0.002
"""How long one connection is acted upon while others wait for the same."""

IDLE_S = 0.05
"""So long behind the end of a budget the loop is in another turn, or has stood still for longer
than another budget could make it."""


class Turns:
    """Bounds what the input of all connections costs in one turn of the event loop.

    What is left waits for the next turn, in the order in which the connections began to wait. A
    budget is begun anew when half of it is gone, not with each turn: most need no word about it.

    Args:
        budget_s: how long all of them may take in one turn, together.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, budget_s: float) -> None:
        self._loop = loop
        self._budget_s = budget_s
        self._waiting: deque[Reader] = deque()
        self._deadline_s = 0.0
        self._is_next_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, connection: Reader) -> bool:
        """Let a connection act at once, if there is time; whether it has nothing left to act on."""
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

    def _wait(self, connection: Reader) -> None:
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
