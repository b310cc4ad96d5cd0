"""Reading ahead: whether to fetch more messages than receivers ask for.

RabbitMQ refills a consumer's prefetch with every ack, whether or not a receiver wants the message.
A receiver that asks again at once wants it: closing the window before the ack, and opening another
window for the request, costs three commands of the queue for each message.

A request is **prompt** when it comes within `LINGER_S` of the first settlement after which no
receiver waited. After `PROMPT_ROUNDS` prompt requests in a row (only requests after a settlement
count) reading ahead is on. It ends when room, or a message, has stood for `LINGER_S` while no
receiver waits, when a receiver takes its credit back, and when a receiver gives back a message
(which stood before the messages read ahead).

Receivers whose prompt requests follow each other within `LINGER_S` as well, for a number of rounds,
are **fast**: RabbitMQ takes longer to bring the next message after an ack (0.15 ms) than such
receivers take to ask. Then windows may also be opened larger than the demand.
"""

from __future__ import annotations

LINGER_S = 0.02
"""How long room, or a message for no receiver, may stand while no receiver waits."""

PROMPT_ROUNDS = 4
"""So many prompt requests in a row turn reading ahead on."""

FAST_ROUNDS = 8
"""So many fast requests in a row let windows be larger than the demand."""

AHEAD = 16
"""Messages that a window of fast receivers has room for, at least."""

AHEAD_MAX = 32
"""Messages beyond the demand that acks may bring, if not more was asked for at a time."""


class ReadAhead:
    """The request pattern of one queue's receivers.

    Args:
        fast_rounds: fast requests in a row that make the receivers fast.

    Attributes:
        is_on: room and messages may stand while no receiver waits for them.
        is_fast: windows may be opened larger than the demand.
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
        """Note that a message was settled while receivers asked for `asked` messages."""
        self._has_settled = True
        if not asked and self._idle_since_s < 0:
            self._idle_since_s = now_s

    def asked(self, now_s: float, *, is_first: bool) -> None:
        """Note that a receiver asks for messages.

        Args:
            is_first: no receiver was waiting; only such a request can be faster than RabbitMQ.
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
        """End reading ahead: a surplus stood for `LINGER_S`, or a receiver gives something back."""
        self.is_on = self.is_fast = False
        self._prompt_rounds = self._fast_rounds = 0

    def _count(self, *, is_fast: bool) -> None:
        self._prompt_rounds += 1
        self._fast_rounds = self._fast_rounds + 1 if is_fast else 0
        self.is_on = self.is_on or self._prompt_rounds >= PROMPT_ROUNDS
        self.is_fast = self.is_on and self._fast_rounds >= self._fast_needed
