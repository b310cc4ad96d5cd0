"""Pages of a journal, read one after another: each is as if it were read alone, and costs less."""

from __future__ import annotations

import asyncio
from bisect import bisect_left

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.broker.connection.kept_channels import KeptChannels
from bridge.broker.streams.standing_reader import StandingReaders
from bridge.broker.streams.stream_reader import StreamEntry
from bridge.engine.browse.journal_read import STOP
from bridge.engine.browse.journal_scan import JournalScan
from bridge.machine.inbox.journal_entries import JournalEntries
from bridge.topology import names, parts
from bridge.wire import journal, stamp
from bridge.wire.basic import Properties
from bridge.wire.gaps import Gap
from tests.fixtures.broker import Broker
from tests.fixtures.counting_calls import Calls

BARE = Properties(delivery_mode=2, headers={"a": ("S", b"b")}).encode()
OTHER = journal.entry_properties(journal.BUCKET)
STREAM = names.journal("orders")
FIRST = 60
"""Messages that are there at the beginning."""

Turn = tuple[str, int]


class Written:
    """A journal that grows, and the numbers that it has."""

    def __init__(self, channel: Channel) -> None:
        self.numbers: list[int] = []
        self._channel = channel
        self._last = 0

    async def grow(self, count: int) -> None:
        """Write messages, now and then an entry without a number."""
        publish = self._channel.publisher.publish_confirmed
        waits = []
        for _ in range(count):
            self._last += 1
            self.numbers.append(self._last)
            fields = stamp.active(self._last, 1, stamp.NO_IDENTITY, None)
            waits.append(publish("", STREAM, stamp.put(BARE, fields), b"x"))
            if self._last % 7 == 0:
                waits.append(publish("", STREAM, OTHER, b"x"))
        await asyncio.gather(*waits)

    async def leap(self, width: int) -> None:
        """Write a gap."""
        entry = JournalEntries("orders").note_gaps([Gap(self._last + 1, self._last + width)])
        publish = self._channel.publisher.publish_confirmed
        await publish("", STREAM, entry.properties, entry.body)
        self._last += width

    def page(self, start: int, count: int) -> list[int]:
        """Return the page that begins at a number."""
        at = bisect_left(self.numbers, start)
        return self.numbers[at : at + count]


async def read_page(scan: JournalScan, start: int, count: int) -> list[int]:
    """Return the numbers of a page."""
    found: list[int] = []

    def take(number: int, entry: StreamEntry) -> int:
        found.append(number)
        return number + 1 if len(found) < count else STOP

    await scan.scan_page(start, take, prefetch=count + 4)
    return found


async def _play(broker: Broker, vhost: str, turns: list[Turn]) -> None:
    connection = await Connection.open(parse_url(broker.url_of(vhost)), name="test")
    standing = StandingReaders()
    try:
        channel = await connection.channel()
        await channel.publisher.confirm_select()
        await channel.declarations.declare_queue(parts.journal("orders"))
        written = Written(channel)
        await written.grow(FIRST)
        scan = JournalScan(KeptChannels(connection), STREAM, None, standing=standing)
        start = 1
        for what, size in turns:
            if what == "grow":
                await written.grow(size)
            elif what == "leap":
                await written.leap(size**3)
            elif what == "jump":
                start = written.numbers[-1 - size % len(written.numbers)]
            elif what == "both":
                pages = [written.page(each, 10) for each in (start, size)]
                reads = (read_page(scan, each, 10) for each in (start, size))
                assert await asyncio.gather(*reads) == pages
            else:
                page = written.page(start, size)
                assert await read_page(scan, start, size) == page
                start = page[-1] + 1 if page else start
        await channel.declarations.delete_queue(STREAM)
    finally:
        standing.close()
        await connection.close()


def test_each_page_is_as_if_it_were_read_alone(broker: Broker, vhost: str) -> None:
    """In a row, after a jump, of other sizes, at the same time, while messages and gaps come."""
    sizes = st.sampled_from([1, 3, 10, 10, 10, 40, 70])
    what = st.sampled_from(["page"] * 6 + ["grow", "leap", "jump", "both"])
    turns = st.lists(st.tuples(what, sizes), min_size=1, max_size=30)

    @settings(max_examples=40, deadline=None)
    @given(turns)
    def holds(turns: list[Turn]) -> None:
        asyncio.run(_play(broker, vhost, turns))

    holds()


async def test_the_pages_of_a_row_start_no_consumers(
    connection: Connection, confirming: Channel
) -> None:
    """Neither a new message at the end does, nor the empty page there."""
    await confirming.declarations.declare_queue(parts.journal("orders"))
    written = Written(confirming)
    await written.grow(FIRST)
    scan = JournalScan(KeptChannels(connection), STREAM, None, standing=StandingReaders())
    assert await read_page(scan, 1, 10) == written.page(1, 10)
    calls = Calls()
    with calls.of("/bridge/broker/connection/") as found:
        for start in range(11, FIRST, 10):
            assert await read_page(scan, start, 10) == written.page(start, 10)
        assert await read_page(scan, FIRST + 1, 10) == []
    assert found["broker/connection/consumers.py:consume_soon"] == 0
    assert found["broker/connection/channel.py:open"] == 0
