"""The numbers of a connection's channels: which one a new channel gets."""

from __future__ import annotations

from collections import deque

CHANNELS_MAX_DEFAULT = 2_047
"""RabbitMQ's default; it holds when RabbitMQ sets no limit."""


class ChannelNumbers:
    """Gives each open channel a number of its own.

    A number of a channel that RabbitMQ has closed rests: RabbitMQ may still send frames of that
    channel, and they are told from a new one's by the number alone. It is given when no other is
    left, the one that has rested longest first.

    Attributes:
        most: the highest number.
    """

    def __init__(self, most: int = CHANNELS_MAX_DEFAULT) -> None:
        self.most = most
        self._given = 0
        self._free: list[int] = []
        self._resting: deque[int] = deque()

    def __repr__(self) -> str:
        return f"ChannelNumbers({self._given} given, {len(self._resting)} at rest)"

    def take(self) -> int | None:
        """Return a number; `None`: all are in use."""
        if self._free:
            return self._free.pop()
        if self._given < self.most:
            self._given += 1
            return self._given
        return self._resting.popleft() if self._resting else None

    def give_back(self, number: int, *, rests: bool) -> None:
        """Note that the channel of a number has ended; `rests`: RabbitMQ has closed it."""
        if rests:
            self._resting.append(number)
        else:
            self._free.append(number)
