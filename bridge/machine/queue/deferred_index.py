"""The deferred index: an owner's deferred messages by number, and the bodies in memory; no I/O.

RabbitMQ keeps every deferred message; the owner has an index of all and the bodies of some. When a
receiver asks for a message whose body is not in memory, the owner returns the message to RabbitMQ,
and it comes again. Of two copies of a message the later counts: the bridge that deferred the
message again died before it removed the earlier copy. Two messages with one number, which a failure
of RabbitMQ and the sequencer together can leave, are received one after the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from bridge.machine.queue.memory_budget import MemoryBudget

Message = TypeVar("Message")


class _Place(Generic[Message]):
    """The entry of one message; without a tag while the message is to come again."""

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

    Each message has an identity, shared by its copies, and a number, by which receivers ask for it.

    Args:
        budget: counts the bodies.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._places: dict[Hashable, _Place[Message]] = {}
        self._identities: dict[int, list[Hashable]] = {}

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._places)

    def __repr__(self) -> str:
        return f"DeferredIndex({len(self)} messages)"

    def arrived(
        self, identity: Hashable, number: int, tag: int, message: Message, size_bytes: int
    ) -> int | None:
        """Add a message; return the delivery tag of a copy to be dropped, if any."""
        earlier = self._take(identity)
        is_wanted = earlier is not None and earlier.tag is None
        self._put(identity, _Place(number, tag, size_bytes, message), is_wanted=is_wanted)
        return None if earlier is None else earlier.tag

    def numbers(self) -> list[int]:
        """Return the numbers of all messages."""
        return list(self._identities)

    def lacks(self, numbers: Iterable[int]) -> int | None:
        """Return the first of the numbers without a message."""
        for number in numbers:
            if number not in self._identities:
                return number
        return None

    def size_bytes(self, numbers: Iterable[int]) -> int:
        """Return the total size of the messages that an ask for these numbers gets."""
        places = (self._places.get(self._nearest(number)) for number in numbers)
        return sum(place.size_bytes for place in places if place is not None)

    def fetch(self, numbers: Iterable[int]) -> list[int]:
        """Return the tags of messages without bodies in memory, for RabbitMQ to send again."""
        tags = []
        for number in numbers:
            place = self._places.get(self._nearest(number))
            if place is not None and place.message is None and place.tag is not None:
                tags.append(place.tag)
                place.tag = None
        return tags

    def take(self, numbers: Sequence[int]) -> list[Message] | None:
        """Take out a message of each number; `None`, and take none, while a body is missing."""
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
        """Add a message again that was taken and has not been changed.

        Returns the message's tag to be dropped when a later copy has come meanwhile.
        """
        if identity in self._places:
            return tag
        self._put(identity, _Place(number, tag, size_bytes, message), is_wanted=False)
        return None

    def gone(self, identity: Hashable) -> int | None:
        """Remove a message that has left for good; return the tag of a second copy to drop."""
        second = self._take(identity)
        return None if second is None else second.tag

    def clear(self) -> None:
        """Remove all messages: RabbitMQ has taken them back."""
        for identity in list(self._places):
            self._take(identity)

    def _nearest(self, number: int) -> Hashable:
        """Return the message for an ask for this number: one with a body in memory, if any."""
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
