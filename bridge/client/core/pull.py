"""A call that waits for messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bridge.client.core.wire import CallerFuture, Wire, fail, succeed
from bridge.message.received import Received
from bridge.message.wake import Timer

FURTHER_S = 0.2
"""How long a call for several messages waits on after the first."""


HeldT = TypeVar("HeldT")


@dataclass(frozen=True, slots=True)
class Begun:
    """What the lane tells a call that waits for messages.

    An answered caller may be interrupted before it goes on, so an answer settles nothing.

    Attributes:
        stop: ends the wait early.
        taken: says that the caller has the answer's messages: those received and deleted are
            settled. `None` if there are none.
        put_back: says that the caller will not have them: the next call gets them.
    """

    stop: Callable[[], None]
    taken: Callable[[], None] | None
    put_back: Callable[[], None]


class Pull(Generic[HeldT]):
    """A call's wanted count, and its messages so far.

    Attributes:
        number: the call's name in the strategy of fetching, if any.
        deletes: the messages are received and deleted.
        got: the messages, as held and as the caller will see them.
        is_withdrawn: the call ends once messages in flight have come.
        is_finished: the messages were given to the caller, or back.
        awaits_word: the messages were given, and the caller has not said whether they came.
    """

    def __init__(
        self, count: int, answer: CallerFuture, *, number: int = 0, deletes: bool = False
    ) -> None:
        self.number = number
        self.deletes = deletes
        self.got: list[tuple[HeldT, Received]] = []
        self.is_withdrawn = False
        self.is_finished = False
        self.awaits_word = False
        self._count = count
        self._answer = answer
        self._timer: Timer | None = None
        self._end_s: float | None = None

    @property
    def lacks(self) -> int:
        """How many messages are missing."""
        return self._count - len(self.got)

    @property
    def is_full(self) -> bool:
        """Whether the call has all wanted messages."""
        return len(self.got) >= self._count

    def end_in(self, wire: Wire, wait_s: float, end: Callable[[], None]) -> None:
        """Call `end` after `wait_s`."""
        self._end_s = wire.now_s() + wait_s
        self._timer = wire.later(wait_s, end)

    def end_soon(self, wire: Wire, end: Callable[[], None]) -> None:
        """Call `end` sooner: a message has come."""
        now_s = wire.now_s()
        if self._end_s is None or self._end_s > now_s + FURTHER_S:
            self._cancel()
            self.end_in(wire, FURTHER_S, end)

    def finish(self) -> bool:
        """Give the caller the messages; return False if the caller has given up."""
        self.is_finished = True
        self._cancel()
        if self._answer.done():
            return False
        self.awaits_word = True
        succeed(self._answer, [received for _, received in self.got])
        return True

    def hear(self) -> bool:
        """Note the caller's word; return False if it is not awaited."""
        awaited, self.awaits_word = self.awaits_word, False
        return awaited

    def fail(self, error: Exception) -> None:
        """Give the caller an error."""
        self._cancel()
        fail(self._answer, error)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
