"""One read of a journal: which entries it gives away, and why it ends."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from bridge.broker.streams.stream_reader import StreamEntry

TRUNCATED = 64
"""A read that begins more offsets than this behind the requested one has the oldest entry."""

FAR = 300
"""The distance in numbers from the wanted one above which a new estimate replaces reading on."""

STOP = -1

Take = Callable[[int, StreamEntry], int]
"""Takes a number and its entry; returns the next number that is wanted, or `STOP`."""


class ReadEnd(Enum):
    """Why a read has ended."""

    END = "the journal ends"
    STOPPED = "it was enough"
    BACK = "begun behind the number"
    FAR = "begun far before it"
    SKIP = "what is wanted next is far ahead"


class JournalPlaces(Protocol):
    """The journal that is read."""

    def see(self, entry: StreamEntry) -> int:
        """Note an entry's offset; return its number, -1 if it has none."""

    def is_far(self, wanted: int, offset: int) -> bool:
        """Whether a number stands far behind the entry at this offset, by the known places."""


class JournalRead:
    """One read of the journal from one offset; `outcome` says why it ended.

    Args:
        is_behind: all lower numbers than the wanted one are known to stand before the offset.

    Attributes:
        wanted: the lowest number to give to `take` next.
        is_placed: the read has come upon a number.
        number: the highest number that the read has come upon; -1 for none.
    """

    def __init__(
        self,
        journal: JournalPlaces,
        start: int,
        wanted: int,
        take: Take,
        *,
        may_estimate: bool,
        is_behind: bool = False,
    ) -> None:
        self._journal = journal
        self._start = start
        self.wanted = wanted
        self._take = take
        self._may_estimate = may_estimate
        self._is_oldest = start == 0 or is_behind
        self._is_begun = False
        self.is_placed = False
        self.number = -1
        self.outcome = ReadEnd.END

    def on_entry(self, entry: StreamEntry) -> bool:
        """Take an entry; return whether it is the last one of this read."""
        if not self._is_begun:
            self._is_begun = True
            self._is_oldest = self._is_oldest or entry.offset > self._start + TRUNCATED
        number = self._journal.see(entry)
        if number < 0:
            return False
        if number > self.number:
            self.number = number
        if not self.is_placed:
            self.is_placed = True
            if number > self.wanted and not self._is_oldest:
                return self._end(ReadEnd.BACK)
            is_far = self.wanted - number > FAR
            if is_far and self._may_estimate and self._journal.is_far(self.wanted, entry.offset):
                return self._end(ReadEnd.FAR)
        if number < self.wanted:
            return False
        self.wanted = self._take(number, entry)
        if self.wanted == STOP:
            return self._end(ReadEnd.STOPPED)
        is_far = self.wanted - number > FAR and self._journal.is_far(self.wanted, entry.offset)
        return is_far and self._end(ReadEnd.SKIP)

    def _end(self, outcome: ReadEnd) -> bool:
        self.outcome = outcome
        return True


class RowOfPages:
    """Pages that follow one another, read by one reader.

    Attributes:
        read: the page that is read now, or was read last.
        number: the highest number that was read; -1 for none.
        end: the offset behind the last entry that was read.
    """

    def __init__(self, read: JournalRead, prefetch: int) -> None:
        self.read = read
        self.prefetch = prefetch
        self.number = -1
        self.end = 0

    def take(self, entry: StreamEntry) -> bool:
        """Pass an entry on to the page."""
        self.end = entry.offset + 1
        return self.read.on_entry(entry)
