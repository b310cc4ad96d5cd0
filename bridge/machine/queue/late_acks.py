"""Acks of received-and-deleted messages: they wait while they would fetch unwanted messages.

RabbitMQ refills a window with every ack. A message that no receiver asks for would have to go back,
and the order would be lost: of a cancelled window RabbitMQ returns messages on their way before
delivered ones (docs/rabbitmq-faults.md: cancel-order). A locked message must be settled when its
client says so; a deleted one may be acked later.

A window with room is closed only when RabbitMQ has said that nothing is on its way to it, and its
acks leave when it has ended. What is on its way to a cancelled window goes back behind the acks
that RabbitMQ has not carried out, and the next window overtakes it (returns-late).
"""

from __future__ import annotations

from collections import deque
from typing import Generic

from bridge.machine.credit.balance import FetchState
from bridge.machine.credit.buffer import Message
from bridge.machine.credit.read_ahead import LINGER_S
from bridge.machine.credit.strategy import Strategy
from bridge.machine.queue.effects import Ack, Effect

HELD_S = 10.0
"""The longest wait of an ack, whatever RabbitMQ says: a kill before it repeats a message."""


class LateAcks(Generic[Message]):
    """Messages of one queue that were received and deleted, and are not acked yet.

    Args:
        credit: the strategy, which knows whether an ack would fetch an unwanted message.

    Attributes:
        due_s: the time of the next acks if no event comes before; `None` while no ack waits.
        look: the fetch that asks whether a message may be on its way; `None` while none does.
    """

    def __init__(self, credit: Strategy[Message]) -> None:
        self.due_s: float | None = None
        self.look: int | None = None
        self._credit = credit
        self._waiting: dict[int, deque[tuple[Message, float]]] = {}
        self._has_acked = False
        self._is_told = False
        self._is_idle = False

    @property
    def oldest_s(self) -> float | None:
        """Since when the oldest message waits; `None` while none does."""
        return min((waiting[0][1] for waiting in self._waiting.values()), default=None)

    def add(self, message: Message, now_s: float) -> None:
        """Add a message that its receiver has and that is to be acked."""
        self._waiting.setdefault(message.fetch, deque()).append((message, now_s))
        if self.look is None:
            self.due_s = now_s + LINGER_S
        elif self.due_s is None:  # all others were acked while RabbitMQ was asked
            self.due_s = now_s + HELD_S

    def act(self, now_s: float, *, is_last: bool = False) -> list[Effect]:
        """Return the effects that ack the messages whose acks fetch no unwanted one.

        At the end, all are acked. If no message has come for `LINGER_S`, RabbitMQ is asked whether
        one may be on its way (`told`); if none, or after `HELD_S`, windows close for the others.
        """
        effects: list[Effect] = []
        if self.due_s is None:
            return effects
        for fetch, waiting in list(self._waiting.items()):
            while waiting and (is_last or not self._must_wait(fetch)):
                close = self._credit.settling(fetch, now_s)
                if close is not None:
                    effects.append(close)
                effects.append(Ack(waiting.popleft()[0], False))
                self._has_acked = True
            if not waiting:
                del self._waiting[fetch]
        oldest_s = self.oldest_s
        if oldest_s is None:
            self.due_s = None
        elif self._is_idle or now_s >= oldest_s + HELD_S:
            closes = [self._credit.close(fetch) for fetch in self._waiting]
            effects += [close for close in closes if close is not None]
            self.due_s = now_s + HELD_S  # they end before
        elif self._is_told:
            self.due_s = now_s + LINGER_S
        elif now_s >= self.due_s:
            if self.look is None and any(map(self._credit.is_open, self._waiting)):
                look = self._credit.look()
                self.look, self._has_acked = look.fetch, False
                effects.append(look)
            self.due_s = oldest_s + HELD_S
        self._is_told = self._is_idle = False
        return effects

    def told(self, *, is_empty: bool) -> None:
        """Take the answer to `look`; `act` is due at once.

        Args:
            is_empty: the queue had no message ready; what was on its way has come since.
        """
        self.look = None
        self._is_told = True
        self._is_idle = is_empty and not self._has_acked

    def clear(self) -> None:
        """Forget all messages: their channels have ended, and RabbitMQ delivers them again."""
        self._waiting.clear()
        self._is_told = self._is_idle = False
        self.look = self.due_s = None

    def _must_wait(self, fetch: int) -> bool:
        """Whether an ack would fetch an unwanted message, or a closing window has not ended."""
        if self._credit.is_filling(fetch):
            return True
        entry = self._credit.balance.fetches.get(fetch)
        return entry is not None and entry.state is FetchState.CLOSING and entry.room > 0
