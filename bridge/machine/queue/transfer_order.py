"""The order in which an entity's transfers are passed on: each target's is that of the queue.

Transfers are offered in passes. A target that takes nothing now is stopped for the rest of a pass:
what goes to others passes it, and what goes to itself waits behind the first. What fails is offered
again in the next pass, at its place.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Message = TypeVar("Message")


class TransferOrder(Generic[Message]):
    """The transfers that wait to be passed on."""

    def __init__(self) -> None:
        self._came = 0
        self._waiting: deque[tuple[int, str, Message]] = deque()
        self._later: list[tuple[int, str, Message]] = []
        self._stopped: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._later)

    def came(self, target: str, message: Message) -> None:
        """Take a message behind all others; `target` is where it goes."""
        self._came += 1
        self._waiting.append((self._came, target, message))

    def next(self) -> tuple[int, Message] | None:
        """Return place and message of the next one to pass on; `None`: the pass is over."""
        while self._waiting:
            found = self._waiting.popleft()
            if found[1] not in self._stopped:
                return found[0], found[2]
            self._later.append(found)
        return None

    def stop(self, place: int, target: str, message: Message) -> None:
        """Have a message, and all that go to its target, wait for the next pass."""
        self._stopped.add(target)
        self._later.append((place, target, message))

    def failed(self, place: int, target: str, message: Message) -> None:
        """Have a message that was passed on, and did not get there, offered again."""
        self._later.append((place, target, message))

    def end_pass(self) -> bool:
        """Begin the next pass; return whether nothing of this one is left."""
        is_all = not self._later
        if self._later:
            self._waiting = deque(sorted([*self._later, *self._waiting], key=_place))
        self._later = []
        self._stopped.clear()
        return is_all


def _place(waiting: tuple[int, str, Message]) -> int:
    return waiting[0]
