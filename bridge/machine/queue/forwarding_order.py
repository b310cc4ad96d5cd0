"""The order in which a forwarder passes messages on: that of their queue.

RabbitMQ returns what a killed process held before anything newer, but not in order. So a forwarder
that begins, or that has lost its messages, first takes all that was returned, and sorts. It has all
when a message comes that was never delivered before, when a request brings nothing more, or when it
has as many as it may hold. From then on what comes is newer than what has come; a request is
sorted, as RabbitMQ may serve it in parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Message = TypeVar("Message")


class ForwardingOrder(Generic[Message]):
    """The messages that wait to be forwarded.

    Args:
        most: the most messages that are collected before the first is passed on.

    Attributes:
        waiting: the messages, the next one first once `has_all`.
        has_all: all that was returned has come.
        has_newer: a message has come that was never delivered before.
    """

    def __init__(self, most: int) -> None:
        self.waiting: deque[Message] = deque()
        self.has_all = False
        self.has_newer = False
        self._most = most
        self._count = 0

    def came(self, message: Message, *, was_delivered: bool) -> None:
        """Take a message; `was_delivered`: RabbitMQ has delivered it before."""
        self.waiting.append(message)
        self.has_newer = self.has_newer or not was_delivered

    def lost(self) -> None:
        """Note that RabbitMQ has taken back messages: they come again."""
        self.has_all = self.has_newer = False
        self._count = 0

    def keep(self, holds: Callable[[Message], bool]) -> None:
        """Forget the messages that RabbitMQ has taken back; the others stay."""
        self.waiting = deque([each for each in self.waiting if holds(each)])

    def ended(self, place: Callable[[Message], tuple[int, int]]) -> None:
        """Note that a request has ended and its messages have come; sort them.

        Args:
            place: a message's place in its queue.
        """
        count = len(self.waiting)
        if not self.has_all:
            self.has_all = self.has_newer or count == self._count or count >= self._most
            self._count = count
        self.waiting = deque(sorted(self.waiting, key=place))
