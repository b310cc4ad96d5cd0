"""The order of what goes back to one queue of RabbitMQ by several channels.

RabbitMQ handles each channel by itself: what is written on one may take effect behind what is
written later on another (docs/rabbitmq-faults.md: channels-order). So messages go back on one
channel at a time. The next channel's turn comes, and the next consumer begins, when RabbitMQ has
answered a request behind the returns (a **barrier**).

A consumer that is cancelled while it has room is a return too: RabbitMQ's channel gives back what
reaches it behind the cancel's answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

ChannelT = TypeVar("ChannelT")


class Returns(Generic[ChannelT]):
    """The returns of one queue's channels.

    Args:
        barrier: has RabbitMQ asked for an answer on a channel, and calls a function behind it.
        is_open: whether a channel is open; of a closed one RabbitMQ has taken all back.
        on_passed: called when no return is under way any more.
    """

    def __init__(
        self,
        barrier: Callable[[ChannelT, Callable[[], None]], None],
        is_open: Callable[[ChannelT], bool],
        on_passed: Callable[[], None],
    ) -> None:
        self._barrier = barrier
        self._is_open = is_open
        self._on_passed = on_passed
        self._waiting: deque[tuple[ChannelT, Callable[[], None]]] = deque()
        self._channel: ChannelT | None = None
        self._barriers = 0
        self._life = 0

    def __repr__(self) -> str:
        return f"Returns({self._barriers} under way, {len(self._waiting)} waiting)"

    @property
    def is_under_way(self) -> bool:
        """Whether what a new consumer gets could overtake what goes back."""
        return self._channel is not None

    def add(self, channel: ChannelT, write: Callable[[], None]) -> None:
        """Return a message by `write`: now, or when the returns of another channel are done."""
        self._waiting.append((channel, write))
        self._write_next()

    def finish(self) -> None:
        """Write at once what waits: the channels are about to be closed."""
        while self._waiting:
            channel, write = self._waiting.popleft()
            if self._is_open(channel):
                write()

    def lose(self) -> None:
        """Forget all: the channels have ended, and RabbitMQ has taken their messages back."""
        self._life += 1
        self._waiting.clear()
        self._channel = None
        self._barriers = 0

    def _write_next(self) -> None:
        while self._waiting and self._channel in (None, self._waiting[0][0]):
            channel, write = self._waiting.popleft()
            if not self._is_open(channel):
                continue
            self._channel = channel
            self._barriers += 1
            write()
            self._barrier(channel, partial(self._pass, self._life))

    def _pass(self, life: int) -> None:
        if life != self._life:
            return
        self._barriers -= 1
        if self._barriers:
            return
        self._channel = None
        self._write_next()
        if self._channel is None:
            self._on_passed()
