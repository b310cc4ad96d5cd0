"""Deferred messages as a pure machine: what waits under which number, and how much of it is here.

RabbitMQ keeps every deferred message; a holder has an index of all and the bodies of some.
A message whose body is not here is returned to RabbitMQ when it is asked for, and comes again. Of
two messages with one number the later one counts: the bridge that put it there died before it took
the earlier one away.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Message = TypeVar("Message")

GONE_MS = 60_000
GONE_MAX = 50_000
"""What has left for good is remembered this long: after a failure of RabbitMQ it may come back."""


@dataclass(slots=True)
class Room:
    """Room for bodies, shared by all shelves of a process.

    Attributes:
        limit_bytes: how much may be here.
        used_bytes: how much is.
    """

    limit_bytes: int
    used_bytes: int = 0


@dataclass(slots=True)
class _Place(Generic[Message]):
    tag: int
    size_bytes: int
    message: Message | None


class Shelf(Generic[Message]):
    """The deferred messages of one queue or dead-letter sub-queue.

    Args:
        room: where bodies are counted.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._places: dict[int, _Place[Message]] = {}
        self._returned: set[int] = set()
        self._gone: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self._places)

    def __repr__(self) -> str:
        return f"Shelf({len(self._places)} waiting, {len(self._returned)} returned)"

    def arrived(
        self, number: int, tag: int, message: Message, size_bytes: int, *, now_ms: int
    ) -> int | None:
        """Put a message up; return the delivery tag of one to be dropped, if there is one."""
        at_ms = self._gone.get(number)
        if at_ms is not None and now_ms - at_ms < GONE_MS:
            return tag
        earlier = self._take(number)
        is_wanted = number in self._returned
        self._returned.discard(number)
        self._put(number, _Place(tag, size_bytes, message), is_wanted=is_wanted)
        return None if earlier is None else earlier.tag

    def lacks(self, numbers: Iterable[int]) -> int | None:
        """Return the first of the numbers under which nothing waits."""
        for number in numbers:
            if number not in self._places and number not in self._returned:
                return number
        return None

    def fetch(self, numbers: Iterable[int]) -> list[int]:
        """Return the tags of those whose bodies are not here: RabbitMQ is to send them again."""
        tags = []
        for number in numbers:
            place = self._places.get(number)
            if place is not None and place.message is None:
                del self._places[number]
                self._returned.add(number)
                tags.append(place.tag)
        return tags

    def take(self, numbers: Sequence[int]) -> list[Message] | None:
        """Take all of them down; `None`, and nothing is taken, while one is not here."""
        places = [self._places.get(number) for number in numbers]
        if any(place is None or place.message is None for place in places):
            return None
        taken = [self._take(number) for number in numbers]
        return [place.message for place in taken if place is not None and place.message is not None]

    def put_back(self, number: int, tag: int, message: Message, size_bytes: int) -> None:
        """Put up again what was taken down and has not been changed."""
        self._put(number, _Place(tag, size_bytes, message), is_wanted=False)

    def gone(self, number: int, *, now_ms: int) -> int | None:
        """A message has left for good; return the tag of a second copy, to be dropped."""
        self._gone[number] = now_ms
        self._gone.move_to_end(number)
        while self._gone:
            oldest = next(iter(self._gone))
            if now_ms - self._gone[oldest] < GONE_MS and len(self._gone) <= GONE_MAX:
                break
            del self._gone[oldest]
        second = self._take(number)
        return None if second is None else second.tag

    def clear(self) -> None:
        """RabbitMQ has taken everything back; what is gone stays so."""
        for number in list(self._places):
            self._take(number)
        self._returned.clear()

    def _put(self, number: int, place: _Place[Message], *, is_wanted: bool) -> None:
        room = self._room
        if is_wanted or room.used_bytes + place.size_bytes <= room.limit_bytes:
            room.used_bytes += place.size_bytes
        else:
            place.message = None
        self._places[number] = place

    def _take(self, number: int) -> _Place[Message] | None:
        place = self._places.pop(number, None)
        if place is not None and place.message is not None:
            self._room.used_bytes -= place.size_bytes
        return place
