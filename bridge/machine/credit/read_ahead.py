"""Whether more may be fetched than receivers ask for, because they ask again at once.

RabbitMQ refills a consumer's prefetch with every ack, whoever wants the message or not. A receiver
that asks again before anybody misses the room wants it: to close the window before the ack and to
open another for the request costs three commands of the queue a message.

A request is **prompt** when it comes within `LINGER_S` of the first settlement after which nobody
waited. After `PROMPT_ROUNDS` prompt requests in a row (of those that follow a settlement) reading
ahead is on. It ends when room, or a message, has stood for `LINGER_S` while nobody waits, and when
a receiver takes its credit back, or gives back a message (which stood before what came ahead).

Receivers whose prompt requests follow on each other within that time as well, for a number of
rounds, are **fast**: RabbitMQ takes longer to bring the next message after an ack (0.15 ms) than
they take to ask. Then windows may also be opened larger than what is asked for.
"""

from __future__ import annotations

LINGER_S = 0.02
"""How long room may stand, or a message that came for nobody, while nobody waits."""

PROMPT_ROUNDS = 4
"""So many prompt requests in a row turn reading ahead on."""

FAST_ROUNDS = 8
"""So many fast requests in a row let windows be larger than what is asked for."""

AHEAD = 16
"""Messages that a window of fast receivers has room for, at least."""

AHEAD_MAX = 32
"""Messages that acks may refill windows with beyond what receivers ask for, if not more was asked
for at a time."""


class ReadAhead:
    """The habits of one queue's receivers.

    Args:
        fast_rounds: so many fast requests in a row are needed.

    Attributes:
        is_on: room may stand, and messages may wait, while nobody waits for them.
        is_fast: windows may be opened larger than what is asked for.
    """

    def __init__(self, fast_rounds: int = FAST_ROUNDS) -> None:
        self.is_on = False
        self.is_fast = False
        self._fast_needed = fast_rounds
        self._prompt_rounds = 0
        self._fast_rounds = 0
        self._has_settled = False
        self._idle_since_s = -1.0
        self._last_asked_s = -1.0

    def __repr__(self) -> str:
        return f"ReadAhead(is_on={self.is_on}, is_fast={self.is_fast})"

    def settled(self, now_s: float, asked: int) -> None:
        """A message was settled, while so many were asked for."""
        self._has_settled = True
        if not asked and self._idle_since_s < 0:
            self._idle_since_s = now_s

    def asked(self, now_s: float, *, is_first: bool) -> None:
        """A receiver asks for messages.

        Args:
            is_first: nobody has waited; others cannot be too fast for RabbitMQ.
        """
        if self._has_settled:
            if self._idle_since_s < 0 or now_s - self._idle_since_s <= LINGER_S:
                self._count(is_fast=is_first and now_s - self._last_asked_s <= LINGER_S)
            else:
                self._prompt_rounds = self._fast_rounds = 0
                self.is_fast = False
            self._has_settled = False
            self._idle_since_s = -1.0
        self._last_asked_s = now_s

    def end(self) -> None:
        """What was fetched ahead has stood for `LINGER_S`, or a receiver gives something back."""
        self.is_on = self.is_fast = False
        self._prompt_rounds = self._fast_rounds = 0

    def _count(self, *, is_fast: bool) -> None:
        self._prompt_rounds += 1
        self._fast_rounds = self._fast_rounds + 1 if is_fast else 0
        self.is_on = self.is_on or self._prompt_rounds >= PROMPT_ROUNDS
        self.is_fast = self.is_on and self._fast_rounds >= self._fast_needed
