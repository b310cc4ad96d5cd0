"""Whether receivers take one message, settle it, and ask for the next at once, again and again.

Only then are messages fetched before they are asked for. Pure: told what happens, and when.

**Cautious.** Before RabbitMQ 4.3 what came ahead cannot be returned uncounted: it stays with the
bridge until somebody asks. So there it takes a longer rhythm, and one that nobody shares: each
number follows on the one before. A gap may be another consumer's message.
"""

from __future__ import annotations

ROUNDS = 8
"""So many times in a row it must have been so."""

CAUTIOUS_ROUNDS = 32
"""The same before 4.3."""

PAUSE_S = 0.02
"""Between an ask and the settlement of its message, and between that and the next ask, no more time
may pass; when it has, what was fetched ahead is given up."""


class Rhythm:
    """The rhythm of one entity's receivers in this process.

    Args:
        is_cautious: what comes ahead cannot be returned uncounted (before 4.3).

    Attributes:
        is_steady: whether the next message will most likely be asked for at once.
    """

    def __init__(self, *, is_cautious: bool = False) -> None:
        self.is_steady = False
        self._is_cautious = is_cautious
        self._needed = CAUTIOUS_ROUNDS if is_cautious else ROUNDS
        self._last_number = 0
        self._rounds = 0
        self._is_settled = False
        self._last_s = 0.0

    def settled(self, now_s: float, number: int, asked: int) -> None:
        """A message was settled, while so many others were asked for."""
        is_next = number == self._last_number + 1 or not self._is_cautious
        if asked or self.is_over(now_s) or not is_next:
            self.stop()
        self._last_number = number
        self._is_settled = True
        self._last_s = now_s

    def asked(self, now_s: float, count: int) -> None:
        """Somebody asks for messages."""
        if not self._is_settled or count != 1 or self.is_over(now_s):
            self.stop()
        else:
            self._rounds += 1
            self.is_steady = self._rounds >= self._needed
        self._is_settled = False
        self._last_s = now_s

    def is_over(self, now_s: float) -> bool:
        """Whether nothing has happened for the pause."""
        return now_s - self._last_s > PAUSE_S

    def stop(self) -> None:
        """It begins anew."""
        self.is_steady = False
        self._rounds = 0
