"""Whose bytes are acted upon when much has come at once: each connection in its turn."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection

QUANTUM_S = 0.002
"""How long one connection is acted upon while others wait for the same."""


class Turns:
    """Bounds what the input of all connections costs in one turn of the event loop.

    What is left waits for the next turn, in the order in which the connections began to wait.

    Args:
        budget_s: how long all of them may take in one turn, together.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, budget_s: float) -> None:
        self._loop = loop
        self._budget_s = budget_s
        self._waiting: deque[Connection] = deque()
        self._deadline_s = 0.0
        self._is_begun = False

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, connection: Connection) -> bool:
        """Let a connection act at once, if there is time; whether it has nothing left to act on."""
        if not self._is_begun:
            self._begin()
        elif self._waiting or self._loop.time() >= self._deadline_s:
            self._waiting.append(connection)
            return False
        is_done = connection.advance(self._deadline_s)
        if not is_done:
            self._waiting.append(connection)
        return is_done

    def _begin(self) -> None:
        self._is_begun = True
        self._deadline_s = self._loop.time() + self._budget_s
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_begun = False
        if not self._waiting:
            return
        self._begin()
        while self._waiting and (now_s := self._loop.time()) < self._deadline_s:
            connection = self._waiting.popleft()
            if not connection.advance(min(self._deadline_s, now_s + QUANTUM_S)):
                self._waiting.append(connection)
