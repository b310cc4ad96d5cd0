"""Where the moved messages of a queue or subscription are, by the moved stream."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping

from bridge.machine.browse.entity_messages import DEFERRED_PLACES, MovedTo, number_of
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.basic import Table, text_in
from bridge.wire.copies import Reader

_DEATH_QUEUE = "x-first-death-queue"


class Places:
    """The moved messages of a queue or subscription, and the offsets of their last copies.

    Args:
        path: the entity's path.
        reader: the reader of a subscription's messages; `None` for a queue.
        shard_count: the number of queues of active messages.

    Attributes:
        found: the offset of the last copy and the place of each message, by number.
    """

    def __init__(self, path: str, reader: Reader | None, shard_count: int = 1) -> None:
        self._active = {names.active_queue(path, shard) for shard in range(shard_count)}
        self._dead = names.dead_letter_queue(path)
        self._deferred = names.deferred_queue(path)
        self._reader = reader
        self.found: dict[int, tuple[int, MovedTo]] = {}
        self._numbers: dict[MovedTo, list[int]] = {place: [] for place in MovedTo}
        self._copies: dict[MovedTo, dict[int, int]] = {place: {} for place in DEFERRED_PLACES}

    def __len__(self) -> int:
        return len(self.found)

    def __contains__(self, number: int) -> bool:
        return number in self.found

    def clear(self) -> None:
        """Forget all places: the stream, perhaps a new one, is read from its beginning."""
        self.found.clear()
        self._numbers = {place: [] for place in MovedTo}
        self._copies = {place: {} for place in DEFERRED_PLACES}

    def take(self, offset: int, table: Table) -> int | None:
        """Add an entry of the moved stream; return its number, or `None` if it has none here."""
        place = self._place(table)
        if place is None:
            return None
        number = number_of(table, self._reader)
        if number < 0:
            return None
        before = self.found.get(number)
        self.found[number] = (offset, place)
        if before is None or before[1] is not place:
            insort(self._numbers[place], number)
        if place in DEFERRED_PLACES:
            self._copies[place][number] = offset
        return number

    def place(self, number: int) -> MovedTo | None:
        """Return the place of a message, `None` for a message that was never moved."""
        found = self.found.get(number)
        return None if found is None else found[1]

    def offset(self, number: int) -> int:
        """Return the offset of a moved message's last copy."""
        return self.found[number][0]

    def deferred_copies(self, place: MovedTo) -> Mapping[int, int]:
        """Return the offsets of the last copies of messages that were deferred from a place.

        A message may have a later copy elsewhere, of a bridge that was killed as it moved it.
        """
        return self._copies[place]

    def copies(self, place: MovedTo) -> dict[int, int]:
        """Return the offsets of the last copies of the messages in a place, by number, in order."""
        if not self._numbers[place]:
            return {}
        found = self.found
        kept = {each: found[each][0] for each in self._numbers[place] if found[each][1] is place}
        self._numbers[place] = list(kept)
        return kept

    def numbers(self, place: MovedTo) -> list[int]:
        """Return the numbers of a place, in order, without messages that have left the place."""
        return list(self.copies(place))

    def _place(self, table: Table) -> MovedTo | None:
        died_in = text_in(table, _DEATH_QUEUE)
        if died_in:
            return MovedTo.DEAD if died_in in self._active else None
        moved_to = text_in(table, headers.MOVED)
        if moved_to == names.DEAD_LETTER_SUFFIX or moved_to == self._dead:
            return MovedTo.DEAD
        if moved_to in self._active:
            return MovedTo.ACTIVE
        if moved_to != self._deferred:
            return None
        return MovedTo.DEAD_DEFERRED if text_in(table, headers.DEFERRED) else MovedTo.DEFERRED
