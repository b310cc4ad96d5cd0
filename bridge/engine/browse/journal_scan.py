"""Reading a journal from a sequence number on: find the number's offset, then read its entries.

The offset is estimated (`machine.browse.anchors`) and corrected by the entries that are read there.
It is exact unless RabbitMQ and a sequencer failed together: then a number that was published again
stands behind higher numbers. It is found when the read reaches its second entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.connection.address import HasChannels
from bridge.broker.errors import BrokerSilent
from bridge.broker.streams.standing_reader import StandingReader, StandingReaders
from bridge.broker.streams.stream_reader import (
    FIRST,
    LAST,
    StreamEntry,
    StreamRead,
    at,
    read_stream,
)
from bridge.engine.browse.journal_end import JournalEnd
from bridge.engine.browse.journal_read import FAR, STOP, JournalRead, ReadEnd, RowOfPages, Take
from bridge.machine.browse.anchors import Anchors
from bridge.machine.browse.entity_messages import number_of
from bridge.wire import headers
from bridge.wire.basic import Table
from bridge.wire.copies import Reader
from bridge.wire.gaps import OWN, Gap, gaps_in
from bridge.wire.stamp import read_waiting

FIRST_S = 10.0
"""How long the journal's first number is taken for right; RabbitMQ drops whole segments, seldom."""


class JournalScan:
    """Reads one journal.

    Args:
        reader: the subscription's reader, whose numbers count; `None`: the journal's own numbers.
        standing: where the reader of a page, and the one of the end, stand; `None`: they end.
        has_entries: whether the journal is known to have entries.
        on_gap: called with each gap in the numbers that count, as often as it is read.

    Attributes:
        end: the highest offset that was read; -1 before the first.
    """

    def __init__(
        self,
        connection: HasChannels,
        stream: str,
        reader: Reader | None,
        *,
        standing: StandingReaders | None = None,
        has_entries: bool = False,
        on_gap: Callable[[Gap], None] | None = None,
    ) -> None:
        self._connection = connection
        self._standing = standing
        self._row: RowOfPages | None = None
        self._stream = stream
        self._reader = reader
        self._on_gap = on_gap
        self._present_end = JournalEnd(connection, stream, standing, self.see)
        self._short = OWN if reader is None else reader.short
        self._anchors = Anchors()
        self.end = -1
        self._highest = -1
        self._has_entries = has_entries
        self._first: int | None = None
        self._first_s = 0.0

    @property
    def has_entries(self) -> bool:
        """Whether the journal is known to have entries: then a read without any is an error."""
        return self._has_entries or self.end >= 0

    async def bounds(self) -> tuple[int, int] | None:
        """Return the first and the last number of the journal; `None`: it has none.

        Raises:
            BrokerError: the channel ended, or the journal gave no entry in time.
        """
        last = await self._find_last()
        if last is None:
            return None
        first = self._first  # another read may forget it meanwhile
        now_s = asyncio.get_running_loop().time()
        is_old = now_s - self._first_s > FIRST_S
        if first is None or (is_old and not await self._is_there(first)):
            found: list[int] = []

            def take(entry: StreamEntry) -> bool:
                number = self.see(entry)
                if number >= 0:
                    found.append(number)
                return bool(found)

            await self._read(FIRST, take, prefetch=10)
            if not found:
                return None
            self._first = first = found[0]
            is_old = True
        if is_old:
            self._first_s = now_s
        return first, last

    async def scan(self, start: int, take: Take, *, prefetch: int = 250) -> None:
        """Give the messages from a number on to `take`, until it stops or the journal ends.

        Raises:
            BrokerError: the channel ended, or the journal gave no entry in time.
        """
        wanted = start
        while wanted != STOP:
            wanted = await self._scan(wanted, take, prefetch)

    async def scan_page(self, start: int, take: Take, *, prefetch: int) -> None:
        """Do as `scan`; a page that begins shortly behind the last one goes on with its reader.

        Raises:
            BrokerError: likewise.
        """
        wanted, row, reader = start, self._row, None
        self._row = None
        if row is not None and self._standing is not None:
            if row.prefetch == prefetch and row.number < start <= row.number + FAR:
                reader = self._standing.take(row)
            else:
                self._standing.end(row)
        if row is not None and reader is not None:
            wanted = await self._go_on(row, reader, wanted, take)
        while wanted != STOP:
            wanted = await self._scan(wanted, take, prefetch, is_page=True)

    async def _go_on(self, row: RowOfPages, reader: StandingReader, wanted: int, take: Take) -> int:
        """Read the next page of a row; return the number to go on from elsewhere, or `STOP`."""
        row.read = JournalRead(self, row.end, wanted, take, may_estimate=True, is_behind=True)
        await reader.read()
        return self._keep(row, reader)

    async def _begin_row(self, start: int, read: JournalRead, prefetch: int) -> None:
        """Read a page with a reader that may stand until the next one."""
        row = RowOfPages(read, prefetch)
        reads = (StreamRead(self._stream, at(start), row.take),)
        try:
            reader = await StandingReader.open(
                self._connection, reads, prefetch=prefetch, unacked=1
            )
        except BrokerSilent:
            self._forget()
            raise
        self._keep(row, reader)

    def _keep(self, row: RowOfPages, reader: StandingReader) -> int:
        """Let a page's reader stand; return the number to go on from, or `STOP`."""
        read = row.read
        row.number = max(row.number, read.number)
        if read.outcome in (ReadEnd.STOPPED, ReadEnd.END) and row.number >= 0:
            self._row = row
            if self._standing is not None:
                self._standing.put(row, reader)
            return STOP
        reader.end()
        return read.wanted

    async def scan_reserved(
        self, numbers: set[int], take: Callable[[int, StreamEntry], None]
    ) -> None:
        """Give scheduled messages whose numbers were reserved before to `take`, each once.

        They stand behind higher numbers: the journal is read from there on until all are found.

        Raises:
            BrokerError: as `scan`.
        """
        left = set(numbers)

        def on_entry(entry: StreamEntry) -> bool:
            self.see(entry)
            number = reserved_number(entry)
            if number in left:
                left.remove(number)
                take(number, entry)
            return not left

        await self._read(at(self._anchors.floor(min(numbers)) or 0), on_entry)

    async def _scan(self, wanted: int, take: Take, prefetch: int, *, is_page: bool = False) -> int:
        """Read from one place; return the number to go on from, or `STOP`."""
        if not len(self._anchors) and await self.bounds() is None:
            return STOP
        start, step, may_estimate = await self._place(wanted), 16, True
        while True:
            read = JournalRead(self, start, wanted, take, may_estimate=may_estimate)
            if is_page and self._standing is not None:
                await self._begin_row(start, read, prefetch)
            else:
                await self._read(at(start), read.on_entry, prefetch=prefetch)
            if read.outcome is ReadEnd.SKIP:
                return read.wanted
            # Behind a gap, whose many numbers have one entry, an estimate is behind the number.
            is_behind = not read.is_placed and start > (self._anchors.floor(wanted) or 0)
            if read.outcome is ReadEnd.BACK or is_behind:
                start = max(min(self._estimate(wanted), start - step), 0)
                step *= 4
                may_estimate = False  # the estimate has led behind the number, and would again
            elif read.outcome is ReadEnd.FAR:
                better = min(self._estimate(wanted) - 2, self.end)
                may_estimate = better > start
                start = max(better, start)
            else:
                return STOP

    async def _read(
        self, start: tuple[str, object], take: Callable[[StreamEntry], bool], *, prefetch: int = 250
    ) -> None:
        may_be_empty = not self.has_entries
        try:
            await read_stream(
                self._connection,
                self._stream,
                start,
                take,
                prefetch=prefetch,
                may_be_empty=may_be_empty,
            )
        except BrokerSilent:
            self._forget()
            raise

    def _forget(self) -> None:
        """Forget all places: the journal may have been deleted and made again."""
        self._anchors.forget()
        self.end, self._highest, self._first, self._has_entries = -1, -1, None, True

    def see(self, entry: StreamEntry) -> int:
        """Note an entry's offset; return its number, -1 if it has none."""
        table = entry.properties.headers or {}
        if entry.offset > self.end:
            self.end = entry.offset
        if headers.RESERVED in table and reserved_number(entry) >= 0:
            return -1  # it stands behind higher numbers: see `scan_reserved`
        if headers.WAITING in table or headers.ENTRY in table:
            number = self._special(entry, table)
        else:
            number = number_of(table, self._reader)
        if number >= 0:
            if number > self._highest:
                self._highest = number
            self._anchors.see(number, entry.offset)
            return number
        for gap in gaps_in(table, entry.body, self._short):
            self._anchors.see_gap(gap.first, gap.last, entry.offset)
            if self._on_gap is not None:
                self._on_gap(gap)
        return number

    def is_far(self, wanted: int, offset: int) -> bool:
        """Whether a number stands far behind the entry at this offset, by the known places."""
        return self._estimate(wanted) - offset > FAR

    def _special(self, entry: StreamEntry, table: Table) -> int:
        """Return the number of a scheduled message; -1 for one of a subscription, and others."""
        if headers.ENTRY in table or self._reader is not None:
            return -1
        try:
            return read_waiting(entry.properties)[0]
        except ValueError:
            return -1

    def _estimate(self, number: int) -> int:
        return self._anchors.estimate(number) or 0

    async def _place(self, wanted: int) -> int:
        guess = self._estimate(wanted)
        if guess > self.end:
            await self._find_last()
            guess = self._estimate(wanted)
        return max(min(guess - 2, self.end), 0)

    async def _find_last(self) -> int | None:
        """Return the highest number near the journal's end."""
        if await self._read_new() and self._highest >= 0:
            return self._highest
        found: list[int] = []

        def take(entry: StreamEntry) -> bool:
            number = self.see(entry)
            if number >= 0:
                found.append(number)
            return False

        await self._read(LAST, take)
        step = 32
        while not found and self.end >= 0 and step <= 8 * (self.end + 32):
            start = max(self.end - step, 0)
            await self._read(at(start), take)
            step *= 8
        return max(found, default=None)

    async def _read_new(self) -> bool:
        """Read on from the last known entry; return whether that has led to the journal's end."""
        if self._highest < 0:
            return False
        try:
            return await self._present_end.look(self.end)
        except BrokerSilent:
            self._forget()
            raise

    async def _is_there(self, number: int) -> bool:
        """Return whether the journal still has the entry of this number, by its known offset."""
        offset = self._anchors.floor(number)
        if offset is None:
            return False
        found: list[int] = []

        def take(entry: StreamEntry) -> bool:
            found.append(entry.offset)
            return True

        await self._read(at(offset), take, prefetch=1)
        return bool(found) and found[0] <= offset


def reserved_number(entry: StreamEntry) -> int:
    """Return the number of a scheduled message whose number was reserved before; -1 for others."""
    if headers.RESERVED not in (entry.properties.headers or {}):
        return -1
    try:
        return read_waiting(entry.properties)[0]
    except ValueError:
        return -1
