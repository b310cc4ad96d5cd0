"""Acks of what was received and deleted: they wait while they would bring what nobody asks for.

RabbitMQ refills a window with every ack. What came so beyond what is asked for would have to go
back, and there the order is lost: of a window that is cancelled RabbitMQ gives back what is on its
way before it hears of what has come (docs/rabbitmq-faults.md: cancel-order). A lock is settled
when its client says so; what is deleted may be acked when its window is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bridge.engine.receiving.consumers import Consumers
from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.credit.read_ahead import LINGER_S
from bridge.machine.credit.strategy import Strategy

HELD_S = 1.0
"""No ack waits for longer, however slowly messages come: after a kill its message comes again."""


class LateAcks:
    """Messages of one queue that were received and deleted, and are not acked yet.

    Args:
        credit: knows whether an ack would bring more than is asked for.
        consumers: the queue's windows.
        ack: acks a message.

    Attributes:
        due_s: when some are to be acked though nothing comes; `None` while there are none.
    """

    def __init__(
        self,
        credit: Strategy[HeldMessage],
        consumers: Consumers,
        ack: Callable[[HeldMessage], None],
    ) -> None:
        self.due_s: float | None = None
        self._credit = credit
        self._consumers = consumers
        self._ack = ack
        self._waiting: dict[int, deque[HeldMessage]] = {}
        self._oldest_s = 0.0

    def add(self, holding: HeldMessage, now_s: float) -> None:
        """A message is gone."""
        if not self._waiting:
            self._oldest_s = now_s
        self._waiting.setdefault(holding.fetch, deque()).append(holding)
        self.due_s = min(now_s + LINGER_S, self._oldest_s + HELD_S)

    def act(self, now_s: float, *, is_last: bool = False) -> None:
        """Ack those that bring nothing in vain, and all when it is time.

        When nothing has come for a while nothing is on its way: then the window is closed first.
        """
        if self.due_s is None:
            return
        is_old = is_last or now_s >= self._oldest_s + HELD_S
        is_quiet = not is_old and now_s >= self.due_s
        for fetch, waiting in list(self._waiting.items()):
            close = self._credit.close(fetch) if is_quiet else None
            if close is not None:
                self._consumers.end(close.fetch)
            while waiting and (is_old or not self._credit.is_filling(fetch)):
                self._ack(waiting.popleft())
            if not waiting:
                del self._waiting[fetch]
        if not self._waiting:
            self.due_s = None

    def clear(self) -> None:
        """The channels are gone, and what was to be acked on them comes again."""
        self._waiting.clear()
        self.due_s = None
