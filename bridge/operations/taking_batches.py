"""The wanted messages that wait, and the batches that they go in."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from bridge.operations.taking_effects import Received


@dataclass(slots=True)
class Wanted:
    """A wanted message in hand.

    Attributes:
        share_max: messages of the largest batch that it may be in.
        is_written: it is in the undo file.
        is_in_doubt: it was sent, and no answer came: a copy may be at the target.
    """

    received: Received
    share_max: int
    is_written: bool = False
    is_in_doubt: bool = False


Batch = tuple[Wanted, ...]


class WaitingBatches:
    """Messages in the order in which they were received.

    Args:
        messages_max, bytes_max: of one batch.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._waiting: deque[Wanted] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Wanted]:
        return iter(self._waiting)

    @property
    def first(self) -> Received:
        """The message that is next."""
        return self._waiting[0].received

    def add(self, received: Received) -> None:
        """Add a message at the end."""
        self._waiting.append(Wanted(received, self._messages_max))

    def put_back(self, batch: Batch, *, is_halved: bool = False) -> None:
        """Put a batch in front; `is_halved`: to be tried in two."""
        if is_halved:
            for each in batch:
                each.share_max = len(batch) // 2
        self._waiting.extendleft(reversed(batch))

    def take(self, keys: Collection[int]) -> list[Wanted]:
        """Return those of these keys, and have them no more."""
        found = [each for each in self._waiting if each.received.key in keys]
        if found:
            self._waiting = deque(each for each in self._waiting if each.received.key not in keys)
        return found

    def take_all(self) -> list[Wanted]:
        """Return all, and have none."""
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def next_batch(self, left: int | None) -> Batch:
        """Take what shares a batch, in order; one message at least.

        Args:
            left: how many may be sent now; `None` for any number.
        """
        found = [self._waiting.popleft()]
        first = found[0]
        size = first.received.size_bytes
        most = min(first.share_max, self._messages_max, left or first.share_max)
        while self._waiting and len(found) < most:
            wanted = self._waiting[0]
            size += wanted.received.size_bytes
            most = min(most, wanted.share_max)
            is_other = wanted.received.group != first.received.group
            if is_other or size > self._bytes_max or len(found) >= most:
                break
            found.append(self._waiting.popleft())
        return tuple(found)


def keys_of(messages: Iterable[Wanted]) -> tuple[int, ...]:
    """Return the keys of messages, in order."""
    return tuple(each.received.key for each in messages)
