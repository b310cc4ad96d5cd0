"""Deferred messages as a pure machine: what waits under which number, and how much of it is here.

RabbitMQ keeps every deferred message; a holder has an index of all and the bodies of some.
A message whose body is not here is returned to RabbitMQ when it is asked for, and comes again. Of
two copies of a message the later one counts: the bridge that put it there died before it took the
earlier one away. Two messages with one number, which a failure of RabbitMQ and the sequencer
together can leave, are had one after the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from bridge.machine.memory_budget import MemoryBudget

Message = TypeVar("Message")


class _Place(Generic[Message]):
    """Where one message waits; or it is to come again, and has no tag until then."""

    __slots__ = ("message", "number", "size_bytes", "tag")

    def __init__(
        self, number: int, tag: int | None, size_bytes: int, message: Message | None
    ) -> None:
        self.number = number
        self.tag = tag
        self.size_bytes = size_bytes
        self.message = message


class DeferredIndex(Generic[Message]):
    """The deferred messages of one queue or dead-letter sub-queue.

    Each has an identity, which its copies share, and a number, by which it is asked for.

    Args:
        budget: where bodies are counted.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._places: dict[Hashable, _Place[Message]] = {}
        self._identities: dict[int, list[Hashable]] = {}

    def __len__(self) -> int:
        """Return how many messages there are."""
        return len(self._places)

    def __repr__(self) -> str:
        return f"DeferredIndex({len(self)} messages)"

    def arrived(
        self, identity: Hashable, number: int, tag: int, message: Message, size_bytes: int
    ) -> int | None:
        """Put a message up; return the delivery tag of a copy to be dropped, if there is one."""
        earlier = self._take(identity)
        is_wanted = earlier is not None and earlier.tag is None
        self._put(identity, _Place(number, tag, size_bytes, message), is_wanted=is_wanted)
        return None if earlier is None else earlier.tag

    def lacks(self, numbers: Iterable[int]) -> int | None:
        """Return the first of the numbers under which nothing waits."""
        for number in numbers:
            if number not in self._identities:
                return number
        return None

    def size_bytes(self, numbers: Iterable[int]) -> int:
        """Return what the messages that an ask for these numbers gets weigh together."""
        places = (self._places.get(self._nearest(number)) for number in numbers)
        return sum(place.size_bytes for place in places if place is not None)

    def fetch(self, numbers: Iterable[int]) -> list[int]:
        """Return the tags of those whose bodies are not here: RabbitMQ is to send them again."""
        tags = []
        for number in numbers:
            place = self._places.get(self._nearest(number))
            if place is not None and place.message is None and place.tag is not None:
                tags.append(place.tag)
                place.tag = None
        return tags

    def take(self, numbers: Sequence[int]) -> list[Message] | None:
        """Take one of each number down; `None`, and nothing is taken, while one is not here."""
        nearest = [self._nearest(number) for number in numbers]
        places = [self._places.get(identity) for identity in nearest]
        if any(place is None or place.message is None for place in places):
            return None
        taken = [place.message for place in places if place and place.message is not None]
        for identity in nearest:
            self._take(identity)
        return taken

    def put_back(
        self, identity: Hashable, number: int, tag: int, message: Message, size_bytes: int
    ) -> int | None:
        """Put up again what was taken down and has not been changed.

        Returns its tag when it is to be dropped, because a later copy has come meanwhile.
        """
        if identity in self._places:
            return tag
        self._put(identity, _Place(number, tag, size_bytes, message), is_wanted=False)
        return None

    def gone(self, identity: Hashable) -> int | None:
        """A message has left for good; return the tag of a second copy, to be dropped."""
        second = self._take(identity)
        return None if second is None else second.tag

    def clear(self) -> None:
        """RabbitMQ has taken everything back."""
        for identity in list(self._places):
            self._take(identity)

    def _nearest(self, number: int) -> Hashable:
        """Return the message that an ask for this number gets: one that is here, if there is."""
        identities = self._identities.get(number, ())
        here = (each for each in identities if self._places[each].message is not None)
        return next(here, next(iter(identities), None))

    def _put(self, identity: Hashable, place: _Place[Message], *, is_wanted: bool) -> None:
        self._budget.keep(place, is_wanted=is_wanted)
        self._places[identity] = place
        self._identities.setdefault(place.number, []).append(identity)

    def _take(self, identity: Hashable) -> _Place[Message] | None:
        place = self._places.pop(identity, None)
        if place is None:
            return None
        identities = self._identities[place.number]
        identities.remove(identity)
        if not identities:
            del self._identities[place.number]
        self._budget.forget(place)
        return place
