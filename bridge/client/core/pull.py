"""One call that waits for messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from bridge.client.core.wire import Answer, Timer, Wire, fail, succeed
from bridge.message.received import Received

FURTHER_S = 0.2
"""How long a call goes on waiting when it has one message and was asked for more."""


HeldT = TypeVar("HeldT")


class Pull(Generic[HeldT]):
    """What it wants, and what it has.

    Attributes:
        number: names it to the strategy of receiving, where there is one.
        deletes: what it gets is gone.
        got: what has come for it, as it is held and as its caller will see it.
        is_withdrawn: it takes what is on its way, and then ends.
        is_finished: what it has was given to its caller, or back.
    """

    def __init__(
        self, count: int, answer: Answer, *, number: int = 0, deletes: bool = False
    ) -> None:
        self.number = number
        self.deletes = deletes
        self.got: list[tuple[HeldT, Received]] = []
        self.is_withdrawn = False
        self.is_finished = False
        self._count = count
        self._answer = answer
        self._timer: Timer | None = None
        self._end_s: float | None = None

    @property
    def lacks(self) -> int:
        """How many more it wants."""
        return self._count - len(self.got)

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

    def finish(self) -> bool:
        """Give its caller what it has; return whether there is still one."""
        self.is_finished = True
        self._cancel()
        if self._answer.done():
            return False
        succeed(self._answer, [received for _, received in self.got])
        return True

    def fail(self, error: Exception) -> None:
        """Tell its caller that nothing will come."""
        self._cancel()
        fail(self._answer, error)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
