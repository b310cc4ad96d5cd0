"""The knowledge behind peeks: which messages an entity has, and where they stand.

    settled stream    numbers that have left a queue, as bridges acked them, and how often
                      messages have failed (`LeftNumbers`)
    moved stream      every message that was dead-lettered, deferred or put back after it had its
                      number; the last entry of a number gives the message's place
                      (`places.Places`)
    deferred list     the numbers of all deferred messages, as their owner had them (`Deferred`)
    journal           all numbers, in order; a number in neither of the two streams is active
    gaps              numbers that no message ever had (`wire.gaps`); the moved stream and the
                      journal name them

Some numbers left without a bridge's entry and are in neither stream: a bridge was killed before it
wrote them, or had settled messages before the first peek, or a native consumer took the messages.
RabbitMQ's count of the remaining messages shows how many such numbers there are; the oldest numbers
are taken for them (`newest`). Deferred messages leave in any order: of them the owner's list says
which are there, also that there is none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import IntEnum

from bridge.machine.ranges import Ranges
from bridge.wire import headers
from bridge.wire.basic import FieldValue, Table
from bridge.wire.copies import Reader
from bridge.wire.gaps import Gap
from bridge.wire.settled import Settled

COUNTS_MAX = 100_000
"""The most counts of failed deliveries of one queue; the earliest are forgotten."""

_ABSENT: FieldValue = ("V", None)


class LeftNumbers:
    """The numbers that have left one queue of RabbitMQ.

    Attributes:
        active: numbers that are not among the available or locked messages.
        deferred: numbers that are not among the deferred messages.
        floor: no lower number is available or locked, by RabbitMQ's count.
        stayed: numbers that only the moved stream says have left, and that have not, by RabbitMQ's
            counts.
        failed: how often messages have failed, as far as anybody has written it.
        gaps: numbers that no message ever had; they are in `active`, too.
    """

    def __init__(self) -> None:
        self.gaps = Ranges()
        self.active = Ranges()
        self.deferred = Ranges()
        self.failed: dict[int, int] = {}
        self.floor = 0
        self.stayed: frozenset[int] = frozenset()
        self._moved: set[int] = set()

    def pass_over(self, gap: Gap) -> None:
        """Take numbers that no message ever had for numbers that have left."""
        self.gaps.add(gap.first, gap.last)
        self.active.add(gap.first, gap.last)

    def take(self, entry: Settled) -> None:
        """Add the numbers of an entry."""
        self.stay(each for each in self.stayed if not _is_in(each, entry.active))
        for first, last in entry.active:
            self.active.add(first, last)
            if last - first < len(self._moved):
                self._moved.difference_update(range(first, last + 1))
            else:
                self._moved = {each for each in self._moved if not first <= each <= last}
            self._forget_failed(first, last)
        for number, count in entry.failed.items():
            self._note_failed(number, count)
        for first, last in entry.deferred:
            self.deferred.add(first, last)

    def _note_failed(self, number: int, count: int) -> None:
        if number in self.active and number not in self._moved:
            return  # another process has written that it has left
        failed = self.failed
        count = max(count, failed.pop(number, 0))
        if len(failed) >= COUNTS_MAX:
            del failed[next(iter(failed))]
        failed[number] = count

    def _forget_failed(self, first: int, last: int) -> None:
        failed = self.failed
        if last - first < len(failed):
            for number in range(first, last + 1):
                failed.pop(number, None)
        elif failed:
            self.failed = {each: failed[each] for each in failed if not first <= each <= last}

    def moved(self, number: int, place: MovedTo) -> None:
        """Take an entry of the moved stream.

        A message whose move RabbitMQ refused is said to be active again; one that the settled
        stream says has left has left.
        """
        if number in self.stayed:
            self.stay(self.stayed - {number})
        if place is not MovedTo.ACTIVE:
            if number not in self.active:
                self.active.add(number, number)
                self._moved.add(number)
        elif number in self._moved:
            self._moved.remove(number)
            self.active.remove(number)

    @property
    def only_moved(self) -> frozenset[int]:
        """The numbers that only the moved stream says have left."""
        return frozenset(self._moved)

    def stay(self, numbers: Iterable[int]) -> None:
        """Set `stayed`; the numbers are of `only_moved`."""
        before, self.stayed = self.stayed, frozenset(numbers)
        for each in before - self.stayed:
            self.active.add(each, each)
        for each in self.stayed - before:
            self.active.remove(each)

    def recorded(self) -> list[tuple[int, int]]:
        """Return the ranges of `active` without what only the moved stream says."""
        only_moved = sorted(self._moved)
        found: list[tuple[int, int]] = []
        for first, last in self.active:
            low, high = bisect_left(only_moved, first), bisect_right(only_moved, last)
            for each in only_moved[low:high]:
                if first < each:
                    found.append((first, each - 1))
                first = each + 1
            if first <= last:
                found.append((first, last))
        return found

    def is_gone(self, number: int) -> bool:
        """Whether a message is neither available nor locked."""
        return number < self.floor or number in self.active

    def next_active(self, number: int) -> int:
        """Return the lowest number from this one on that may be available or locked."""
        return self.active.next_free(max(number, self.floor))

    def unsettled(self, first: int, last: int) -> int:
        """Return how many of the numbers from `first` to `last` are not known to have left."""
        return max(last - first + 1, 0) - self.active.count(first, last)

    def given(self, first: int, last: int) -> int:
        """Return how many of the numbers from `first` to `last` messages have had."""
        return max(last - first + 1, 0) - self.gaps.count(first, last)


def _is_in(number: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= number <= last for first, last in ranges)


class MovedTo(IntEnum):
    """The present place of a moved message."""

    ACTIVE = 0
    DEAD = 1
    DEFERRED = 2
    DEAD_DEFERRED = 3


DEFERRED_PLACES = (MovedTo.DEFERRED, MovedTo.DEAD_DEFERRED)


class Deferred:
    """The numbers of an entity's deferred messages.

    Before the owner's list is there, they are what the streams say: all that were deferred, without
    those that are known to have left. Then they are the list, with what the streams have said since
    the owner was asked. A list may have numbers that the streams call gone: RabbitMQ brought the
    message back when an ack was lost.

    Args:
        left: by place, the numbers that have left it, as the settled streams say.

    Attributes:
        is_known: the owner's list is there, or there is no queue for them.
        is_doubtful: what was told last lacks numbers that the streams gave; no count agrees yet.
    """

    def __init__(self, left: dict[MovedTo, Ranges]) -> None:
        self.is_known = False
        self.is_doubtful = False
        self._excused = 0
        self._left = left
        self._there: dict[MovedTo, set[int]] = {place: set() for place in DEFERRED_PLACES}
        self._since: list[tuple[MovedTo, int, int, bool]] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._there.values()))

    def numbers(self, place: MovedTo) -> list[int]:
        """Return the numbers of the messages that were deferred from a place, in order."""
        return sorted(self._there[place])

    def forget(self) -> None:
        """Forget all: the streams are read from their beginnings."""
        self.is_known = False
        self._there = {place: set() for place in DEFERRED_PLACES}
        self._since = None

    def moved(self, number: int, place: MovedTo) -> None:
        """Take an entry of the moved stream."""
        for each in DEFERRED_PLACES:
            if each is not place:
                self._note(each, number, number, is_there=False)
            elif number not in self._left[each]:
                self._note(each, number, number, is_there=True)

    def left(self, place: MovedTo, first: int, last: int) -> None:
        """Take a range of an entry of the settled stream."""
        self._note(place, first, last, is_there=False)

    def counted(self, ready: int | None, held: int) -> bool:
        """Take counts that were asked for behind `ask`; return whether the owner must be asked.

        Both were asked for one after the other, and RabbitMQ takes back later what its holder gives
        back: such a message is in neither, and one that was delivered meanwhile in both. So of a
        queue that exists no count says that it has none.

        Args:
            ready: RabbitMQ's; `None`: it has no queue for them, and so nothing is deferred but what
                the streams have named since.
            held: the messages that bridges hold.
        """
        if ready is None:
            self.told((), ())
            return False
        self._since = None
        if not self.is_known or ready + held - len(self) not in (0, self._excused):
            return True
        self.is_doubtful = False
        return False

    def excuse(self, count: int) -> None:
        """Take a count as right that stood still while the owner was asked, and is higher.

        Two messages with one number count twice, until one of them leaves.
        """
        self._excused = max(count - len(self), 0)

    def ask(self) -> None:
        """Note that RabbitMQ and bridges are about to be asked for counts, or the owner."""
        self._since = []

    def lacks(self, own: Iterable[int], of_dead_letters: Iterable[int]) -> bool:
        """Whether an owner's list lacks a message that is there by what is known."""
        told = {MovedTo.DEFERRED: own, MovedTo.DEAD_DEFERRED: of_dead_letters}
        return any(self._there[place].difference(told[place]) for place in DEFERRED_PLACES)

    def told(self, own: Iterable[int], of_dead_letters: Iterable[int]) -> None:
        """Take the owner's list."""
        before = self._there
        self._there = {MovedTo.DEFERRED: set(own), MovedTo.DEAD_DEFERRED: set(of_dead_letters)}
        self.is_known, self._excused = True, 0
        since, self._since = self._since or [], None
        for place, first, last, is_there in since:
            self._note(place, first, last, is_there=is_there)
        self.is_doubtful = any(before[place] - self._there[place] for place in DEFERRED_PLACES)

    def _note(self, place: MovedTo, first: int, last: int, *, is_there: bool) -> None:
        if self._since is not None:
            self._since.append((place, first, last, is_there))
        there = self._there[place]
        if is_there:
            there.update(range(first, last + 1))
            return
        self._excused = 0
        if last - first < len(there):
            there.difference_update(range(first, last + 1))
        else:
            self._there[place] = {each for each in there if not first <= each <= last}


def is_active_entry(table: Table) -> bool:
    """Whether a journal entry is a message that was published into its queue."""
    return (
        headers.ENTRY not in table and headers.WAITING not in table and headers.MOVED not in table
    )


def number_of(table: Table, reader: Reader | None) -> int:
    """Return a message's number in its entity, -1 for none."""
    if reader is not None:
        if headers.COPIES not in table and headers.ENQUEUED_SEQUENCE_NUMBER not in table:
            return -1
        return reader.number(table)
    number = table.get(headers.SEQUENCE_NUMBER, _ABSENT)[1]
    return number if isinstance(number, int) else -1


def expires_ms(table: Table, reader: Reader | None) -> int | None:
    """Return when a message expires (UTC ms), `None` for never."""
    enqueued_ms = table.get(headers.ENQUEUED_TIME, _ABSENT)[1]
    ttl_ms = table.get(headers.TIME_TO_LIVE, _ABSENT)[1]
    if reader is not None:
        ttl_ms = reader.ttl_ms(table)
    if not isinstance(enqueued_ms, int) or not isinstance(ttl_ms, int):
        return None
    return enqueued_ms + ttl_ms


def newest(numbers: Iterable[int], count: int) -> int | None:
    """Return the lowest of the `count` highest numbers; `None` with `count` numbers or fewer.

    For a count of 0 the result is above all numbers.
    """
    found = sorted(set(numbers))
    if len(found) <= count:
        return None
    return found[-count] if count else found[-1] + 1
