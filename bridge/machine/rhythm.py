"""Whether receivers take one message, settle it, and ask for the next at once, again and again.

Only then are messages fetched before they are asked for. Pure: told what happens, and when.
"""

from __future__ import annotations

ROUNDS = 8
"""So many times in a row it must have been so."""

PAUSE_S = 0.02
"""Between an ask and the settlement of its message, and between that and the next ask, no more time
may pass; when it has, what was fetched ahead is given up."""


class Rhythm:
    """The rhythm of one entity's receivers in this process.

    Attributes:
        is_steady: whether the next message will most likely be asked for at once.
    """

    def __init__(self) -> None:
        self.is_steady = False
        self._rounds = 0
        self._is_settled = False
        self._last_s = 0.0

    def settled(self, now_s: float, asked: int) -> None:
        """A message was settled, while so many others were asked for."""
        if asked or self.is_over(now_s):
            self.stop()
        self._is_settled = True
        self._last_s = now_s

    def asked(self, now_s: float, count: int) -> None:
        """Somebody asks for messages."""
        if not self._is_settled or count != 1 or self.is_over(now_s):
            self.stop()
        else:
            self._rounds += 1
            self.is_steady = self._rounds >= ROUNDS
        self._is_settled = False
        self._last_s = now_s

    def is_over(self, now_s: float) -> bool:
        """Whether nothing has happened for the pause."""
        return now_s - self._last_s > PAUSE_S

    def stop(self) -> None:
        """It begins anew."""
        self.is_steady = False
        self._rounds = 0
