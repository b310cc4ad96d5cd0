"""Whether more may be fetched than receivers ask for, because they ask again at once.

RabbitMQ refills a consumer's prefetch with every ack, whoever wants the message or not. A receiver
that asks again within `LINGER_S` of a settlement wants it: to close the window before the ack and
to open another for the request costs three commands of the queue a message.

Reading ahead is on at first. It ends when room, or a message, has stood for `LINGER_S` and nobody
has asked, or when a receiver takes its credit back. After `PROMPT_ROUNDS` requests in a row that
came within that time of the first settlement before them it is on again.

A receiver whose whole cycle (request, message, settlement, request) takes less than that, for
`FAST_ROUNDS` cycles, is faster than RabbitMQ brings the next message after an ack (0.15 ms): then
windows may also be opened larger than what is asked for.
"""

from __future__ import annotations

LINGER_S = 0.02
"""How long room that nobody wants, or a message that came for nobody, may stand."""

PROMPT_ROUNDS = 4
"""So many prompt requests in a row turn reading ahead on again."""

FAST_ROUNDS = 8
"""So many fast cycles in a row let windows be larger than what is asked for."""

AHEAD_MAX = 32
"""Messages that may be fetched beyond what receivers ask for."""


class ReadAhead:
    """The habits of one queue's receivers.

    Attributes:
        is_on: acks may refill windows beyond what is asked for.
    """

    def __init__(self) -> None:
        self.is_on = True
        self._prompt_rounds = 0
        self._fast_rounds = 0
        self._first_settled_s = -1.0
        self._last_asked_s = -1.0

    def __repr__(self) -> str:
        return f"ReadAhead(is_on={self.is_on}, is_fast={self.is_fast})"

    @property
    def is_fast(self) -> bool:
        """Windows may be opened larger than what is asked for."""
        return self.is_on and self._fast_rounds >= FAST_ROUNDS

    def settled(self, now_s: float) -> None:
        """A message was settled."""
        if self._first_settled_s < 0:
            self._first_settled_s = now_s

    def asked(self, now_s: float) -> None:
        """A receiver asks for messages."""
        if self._first_settled_s >= 0:
            is_prompt = now_s - self._first_settled_s <= LINGER_S
            is_fast = is_prompt and now_s - self._last_asked_s <= LINGER_S
            self._prompt_rounds = self._prompt_rounds + 1 if is_prompt else 0
            self._fast_rounds = self._fast_rounds + 1 if is_fast else 0
            self.is_on = self.is_on or self._prompt_rounds >= PROMPT_ROUNDS
        self._first_settled_s = -1.0
        self._last_asked_s = now_s

    def end(self) -> None:
        """What was fetched ahead has stood for `LINGER_S`, or a receiver takes its credit back."""
        self.is_on = False
        self._prompt_rounds = self._fast_rounds = 0
