"""One page of a peek, put together from several sources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bridge.engine.api import Received
from bridge.engine.sessions.membership import IsMember

PAGE_BYTES_MAX = 1 << 20
"""The most bytes of a page; its first message may be larger."""

COUNT_MAX = 250
"""The most messages of one peek, as Azure has it."""

PREFETCH = 64
"""The most entries on their way at a time: 16 MiB of messages of 256 KiB."""

SESSION_READ_MAX = 5_000
"""The scheduled or moved messages that are searched at a time for a session's messages."""

Named = Callable[[int, int], Awaitable[list[int]]]
"""Returns the numbers of a source's messages, from a number on, up to a count."""

Read = Callable[[list[int]], Awaitable[None]]
"""Adds the messages of a source with these numbers to a page; some of them may not exist."""


class Page:
    """The messages that the sources have given; `result` returns those of the lowest numbers.

    Attributes:
        count: the most messages of the page.
        takes: tells by its headers whether a message is wanted; `None`: each message is.
    """

    def __init__(self, count: int, takes: IsMember | None) -> None:
        self.count = count
        self.takes = takes
        self._found: dict[int, Received] = {}
        self._bytes = 0
        self._end: int | None = None

    def end_at(self, number: int) -> None:
        """End the page at this number: a source may have more messages behind it."""
        self._end = number if self._end is None else min(self._end, number)

    def has_up_to(self, number: int) -> bool:
        """Return whether the page has a message up to this number, or ends at or before it."""
        is_over = self._end is not None and self._end <= number
        return is_over or any(each <= number for each in self._found)

    @property
    def prefetch(self) -> int:
        """The prefetch of a read for this page."""
        return PREFETCH if self.takes is not None else min(self.count + 4, PREFETCH)

    def add(self, received: Received) -> bool:
        """Add a message, unless the peek is for another session; return whether the page is full.

        It is when it has enough messages, or more bytes than `PAGE_BYTES_MAX`.
        """
        record = received.record
        if self.takes is not None and not self.takes(record.properties.headers or {}):
            return False
        self._found[received.sequence_number] = received
        self._bytes += len(record.body) + 500
        if len(self._found) > 2 * self.count + 100:  # higher numbers cannot be on the page
            for number in sorted(self._found)[self.count :]:
                del self._found[number]
        return len(self._found) >= self.count or self._bytes > PAGE_BYTES_MAX

    async def read_on(self, start: int, named: Named, read: Read) -> None:
        """Read the messages of a source from a number on, until the page has one or none is left.

        Args:
            named: returns the source's next numbers.
            read: adds the messages with these numbers to the page.
        """
        limit = self.count if self.takes is None else SESSION_READ_MAX
        while numbers := await named(start, limit):
            await read(numbers)
            if len(numbers) < limit:
                return
            if self.has_up_to(numbers[-1]):
                self.end_at(numbers[-1])
                return
            # These are gone, or of other sessions. An empty page would end the client's peeks.
            start, limit = numbers[-1] + 1, max(limit, COUNT_MAX)

    def result(self) -> list[Received]:
        """Return the page's messages in the order of their numbers."""
        found: list[Received] = []
        size_bytes = 0
        for number in sorted(self._found)[: self.count]:
            if self._end is not None and number > self._end:
                break
            size_bytes += len(self._found[number].record.body) + 500
            if found and size_bytes > PAGE_BYTES_MAX:
                break
            found.append(self._found[number])
        return found
