"""Messages that came back unsettled, or came for nobody, and wait for the next asker."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(slots=True, eq=False)
class Fetched:
    """A message that RabbitMQ has handed to this process and that is not settled.

    Attributes:
        number: its sequence number.
        fetch: the fetch that brought it.
        expires_ms: when it expires (UTC ms), or `None` for never.
    """

    number: int
    fetch: int
    expires_ms: int | None


Message = TypeVar("Message", bound=Fetched)


class Kept(Generic[Message]):
    """A heap by number."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Message]] = []
        self._serial = 0
        self._mortal = 0
        self._soonest_ms = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, message: Message) -> None:
        """Keep a message."""
        self._serial += 1
        end_ms = message.expires_ms
        if end_ms is not None:
            self._soonest_ms = min(end_ms, self._soonest_ms) if self._mortal else end_ms
            self._mortal += 1
        heapq.heappush(self._heap, (message.number, self._serial, message))

    def pop(self) -> Message:
        """Take out the message of the lowest number."""
        message = heapq.heappop(self._heap)[2]
        self._mortal -= message.expires_ms is not None
        return message

    def pop_expired(self, now_ms: int) -> list[Message]:
        """Take out what has expired."""
        expired = [entry[2] for entry in self._heap if _is_expired(entry[2], now_ms)]
        if expired:
            self._heap = [entry for entry in self._heap if not _is_expired(entry[2], now_ms)]
            heapq.heapify(self._heap)
            self._mortal -= len(expired)
        ends = (entry[2].expires_ms for entry in self._heap)
        self._soonest_ms = min((end_ms for end_ms in ends if end_ms is not None), default=0)
        return expired

    def pop_all(self) -> list[Message]:
        """Take out all, lowest number first."""
        messages, self._heap = [entry[2] for entry in sorted(self._heap)], []
        self._mortal = 0
        return messages

    def next_expiry_ms(self) -> int | None:
        """Return when the first of them expires, or has left before; `None` if none ever does.

        It is asked with every message that comes and goes: so it is not searched for before
        `pop_expired`.
        """
        return self._soonest_ms if self._mortal else None


def _is_expired(message: Fetched, now_ms: int) -> bool:
    return message.expires_ms is not None and message.expires_ms <= now_ms
