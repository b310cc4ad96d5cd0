"""A search for messages of a queue by their numbers: what has come, and what of it is wanted.

A queue gives its first message only. So all that stands before a wanted one is held unacked until
the search is over, and goes back uncounted, in order. Its content is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar


class HasNumber(Protocol):
    """A message that has come.

    Attributes:
        number: its sequence number, below 0 for a message without one.
    """

    number: int


Message = TypeVar("Message", bound=HasNumber)


class NumberedSearch(Generic[Message]):
    """One search.

    Args:
        numbers: of the messages that are wanted; `None`: of none, and the search goes to the
            queue's end.
        passed_max: how many others may be held; the search ends at the next one.
        bytes_max: the search ends when the wanted messages that were found are larger.
        holds: returns whether a message is still unacked here: RabbitMQ may have taken it back.

    Attributes:
        came: how many messages have come.
        found: the wanted messages, by their numbers. Of two messages with one number, which a
            failure of RabbitMQ and the sequencer together can leave, it is the first.
        passed: the others, in the order in which they came.
        is_cut: the search has ended at a bound.
    """

    def __init__(
        self,
        numbers: Iterable[int] | None,
        *,
        passed_max: int,
        bytes_max: int,
        holds: Callable[[Message], bool],
    ) -> None:
        self.came = 0
        self.found: dict[int, Message] = {}
        self.passed: list[Message] = []
        self._wanted = frozenset(numbers or ())
        self._is_to_the_end = numbers is None
        self._passed_max = passed_max
        self._bytes_max = bytes_max
        self._holds = holds
        self._sizes: dict[int, int] = {}

    def __repr__(self) -> str:
        return (
            f"NumberedSearch({len(self.found)} of {len(self._wanted)}, {len(self.passed)} others)"
        )

    @property
    def room(self) -> int:
        """How many messages may still come; 0: the search is over."""
        if self.is_cut or self._has_all:
            return 0
        return self._passed_max + 1 - len(self.passed) + len(self._wanted) - len(self.found)

    @property
    def is_cut(self) -> bool:
        """Whether a bound has ended the search before all were found."""
        found_bytes = sum(self._sizes.values())
        is_full = len(self.passed) > self._passed_max or found_bytes >= self._bytes_max
        return is_full and not self._has_all

    @property
    def _has_all(self) -> bool:
        return not self._is_to_the_end and len(self.found) == len(self._wanted)

    def take(self, message: Message, size_bytes: int) -> bool:
        """Take a message that has come; return whether it is wanted: its content is to be kept."""
        self.came += 1
        number = message.number
        earlier = self.found.get(number)
        if number not in self._wanted or (earlier is not None and self._holds(earlier)):
            self.passed.append(message)
            return False
        self.found[number] = message
        self._sizes[number] = size_bytes
        return True

    def prune(self) -> None:
        """Forget the messages that RabbitMQ has taken back: they come again."""
        self.passed = [each for each in self.passed if self._holds(each)]
        for number, each in list(self.found.items()):
            if not self._holds(each):
                del self.found[number], self._sizes[number]
