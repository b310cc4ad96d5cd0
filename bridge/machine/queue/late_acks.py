"""Acks of received-and-deleted messages: they wait while they would fetch unwanted messages.

RabbitMQ refills a window with every ack. A message that no receiver asks for would have to go back,
and the order would be lost: of a cancelled window RabbitMQ returns messages on their way before
delivered ones (docs/rabbitmq-faults.md: cancel-order). A locked message must be settled when its
client says so; a deleted one may be acked later.
"""

from __future__ import annotations

from collections import deque
from typing import Generic

from bridge.machine.credit.buffer import Message
from bridge.machine.credit.read_ahead import LINGER_S
from bridge.machine.credit.strategy import Strategy
from bridge.machine.queue.effects import Ack, Effect

HELD_S = 1.0
"""The longest wait of an ack, however slowly messages come: a kill before it repeats a message."""


class LateAcks(Generic[Message]):
    """Messages of one queue that were received and deleted, and are not acked yet.

    Args:
        credit: the strategy, which knows whether an ack would fetch an unwanted message.

    Attributes:
        due_s: the time of the next acks if no event comes before; `None` while no ack waits.
    """

    def __init__(self, credit: Strategy[Message]) -> None:
        self.due_s: float | None = None
        self._credit = credit
        self._waiting: dict[int, deque[Message]] = {}
        self._oldest_s = 0.0

    def add(self, message: Message, now_s: float) -> None:
        """Add a message that its receiver has and that is to be acked."""
        if not self._waiting:
            self._oldest_s = now_s
        self._waiting.setdefault(message.fetch, deque()).append(message)
        self.due_s = min(now_s + LINGER_S, self._oldest_s + HELD_S)

    def act(self, now_s: float, *, is_last: bool = False) -> list[Effect]:
        """Return the effects that ack the messages whose acks fetch no unwanted one.

        After `HELD_S`, or at the end, all are acked. If no message has come for `LINGER_S`, none is
        on its way: the window is closed, and its messages are acked.
        """
        effects: list[Effect] = []
        if self.due_s is None:
            return effects
        is_old = is_last or now_s >= self._oldest_s + HELD_S
        is_quiet = not is_old and now_s >= self.due_s
        credit = self._credit
        for fetch, waiting in list(self._waiting.items()):
            close = credit.close(fetch) if is_quiet else None
            if close is not None:
                effects.append(close)
            while waiting and (is_old or not credit.is_filling(fetch)):
                close = credit.settling(fetch, now_s)
                if close is not None:
                    effects.append(close)
                effects.append(Ack(waiting.popleft(), False))
            if not waiting:
                del self._waiting[fetch]
        if not self._waiting:
            self.due_s = None
        return effects

    def clear(self) -> None:
        """Forget all messages: their channels have ended, and RabbitMQ delivers them again."""
        self._waiting.clear()
        self.due_s = None
