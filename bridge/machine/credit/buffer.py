"""Messages that came for no receiver, or were released, and wait for the next receiver."""

from __future__ import annotations

import heapq
from typing import Generic, Protocol, TypeVar


class Fetched(Protocol):
    """A message that RabbitMQ has handed to this process and that is not settled.

    Attributes:
        number: the message's sequence number.
        fetch: the fetch that brought the message.
        redelivered: whether it was delivered before, as far as RabbitMQ knows.
    """

    number: int
    fetch: int
    redelivered: bool


Message = TypeVar("Message", bound=Fetched)


def number_of(message: Fetched) -> int:
    """Return a message's number, by which messages are put in order."""
    return message.number


class LocalBuffer(Generic[Message]):
    """Messages by number, each with the time at which it was buffered.

    Attributes:
        count: number of messages.
        oldest_s: no message was buffered before this time; of no meaning for an empty buffer.
    """

    def __init__(self) -> None:
        self.count = 0
        self.oldest_s = 0.0
        self._heap: list[tuple[int, int, float, Message]] = []
        self._serial = 0

    def push(self, message: Message, now_s: float) -> None:
        """Buffer a message."""
        if not self.count:
            self.oldest_s = now_s
        self.count += 1
        self._serial += 1
        heapq.heappush(self._heap, (message.number, self._serial, now_s, message))

    def pop(self) -> Message:
        """Take out the message with the lowest number."""
        self.count -= 1
        return heapq.heappop(self._heap)[3]

    def pop_since(self, time_s: float) -> list[Message]:
        """Take out the messages buffered at this time or earlier, lowest number first."""
        old = [entry[3] for entry in sorted(self._heap) if entry[2] <= time_s]
        self._heap = [entry for entry in self._heap if entry[2] > time_s]
        heapq.heapify(self._heap)
        self.count = len(self._heap)
        self.oldest_s = min((entry[2] for entry in self._heap), default=0.0)
        return old

    def pop_all(self) -> list[Message]:
        """Take out all messages, lowest number first."""
        messages, self._heap = [entry[3] for entry in sorted(self._heap)], []
        self.count = 0
        return messages
