"""One call that waits for messages."""

from __future__ import annotations

from collections.abc import Callable

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.received import Received
from bridge.client.core.wire import Answer, Timer, Wire, succeed

FURTHER_S = 0.2
"""How long a call goes on waiting when it has one message and was asked for more."""


class Pull:
    """What it wants, and what it has.

    Attributes:
        number: names it to the strategy of receiving.
        got: what has come for it.
        is_withdrawn: it takes what is on its way, and then ends.
    """

    def __init__(
        self, number: int, count: int, mode: ServiceBusReceiveMode, answer: Answer
    ) -> None:
        self.number = number
        self.mode = mode
        self.got: list[Received] = []
        self.is_withdrawn = False
        self._count = count
        self._answer = answer
        self._timer: Timer | None = None
        self._end_s: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether it has all that it wants."""
        return len(self.got) >= self._count

    def end_in(self, wire: Wire, wait_s: float, end: Callable[[], None]) -> None:
        """Have `end` called after a while."""
        self._end_s = wire.now_s() + wait_s
        self._timer = wire.later(wait_s, end)

    def end_soon(self, wire: Wire, end: Callable[[], None]) -> None:
        """Have it called sooner: there is something."""
        now_s = wire.now_s()
        if self._end_s is None or self._end_s > now_s + FURTHER_S:
            self._cancel()
            self.end_in(wire, FURTHER_S, end)

    def finish(self) -> None:
        """Give its caller what it has."""
        self._cancel()
        succeed(self._answer, self.got)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
