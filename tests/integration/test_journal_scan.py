"""Reading a journal from a number on, on a real stream."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from contextlib import suppress

import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.broker.errors import BrokerSilent
from bridge.broker.streams.stream_reader import StreamEntry, at
from bridge.engine.browse import journal_scan
from bridge.engine.browse.journal_end import NEW_MAX
from bridge.engine.browse.journal_read import STOP
from bridge.engine.browse.journal_scan import JournalScan
from bridge.machine.inbox.journal_entries import JournalEntries
from bridge.topology import names, parts
from bridge.wire import journal, stamp
from bridge.wire.basic import Properties
from bridge.wire.gaps import Gap
from tests.fixtures.broker import Broker

COUNT = 6_000
BARE = Properties(delivery_mode=2, headers={"a": ("S", b"b")}).encode()
OTHER = journal.entry_properties(journal.BUCKET)


async def write(connection: Connection) -> str:
    """Write a journal in which places and numbers drift apart, by a leap in its middle."""
    stream = names.journal("orders")
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.declarations.declare_queue(parts.journal("orders"))
    waits = []
    for number in range(1, COUNT + 1):
        if number % 701 == 0 or COUNT // 3 < number < COUNT // 3 + 500:
            waits.append(channel.publisher.publish_confirmed("", stream, OTHER, b"x"))
        fields = stamp.active(number, 1, stamp.NO_IDENTITY, None)
        waits.append(channel.publisher.publish_confirmed("", stream, stamp.put(BARE, fields), b"x"))
        if len(waits) > 1_000:
            await asyncio.gather(*waits)
            waits.clear()
    await asyncio.gather(*waits)
    return stream


class _CountingScan(JournalScan):
    """A scan that counts the entries that it has read."""

    seen = 0

    def see(self, entry: StreamEntry) -> int:
        self.seen += 1
        return super().see(entry)


class _ForgettingScan(JournalScan):
    """A scan of which another read finds the journal silent, and forgets it, at two places."""

    async def _is_there(self, number: int) -> bool:
        found = await super()._is_there(number)
        await self._find_silent()
        return found

    async def _read_new(self) -> bool:
        found = await super()._read_new()
        await self._find_silent()
        return found

    async def _find_silent(self) -> None:
        with suppress(BrokerSilent):
            await self._read(at(10 * COUNT), lambda entry: True)


async def numbers_from(scan: JournalScan, start: int, count: int, step: int = 1) -> list[int]:
    """Return the numbers that a scan hands over."""
    found: list[int] = []

    def take(number: int, entry: StreamEntry) -> int:
        found.append(number)
        return number + step if len(found) < count else STOP

    await scan.scan(start, take, prefetch=count)
    return found


async def test_a_scan_begins_at_the_number_and_ends_with_the_journal(
    broker: Broker, vhost: str
) -> None:
    """At any number, in steps, at the last ones and behind them."""
    connection = await Connection.open(parse_url(broker.url_of(vhost)), name="test")
    try:
        scan = JournalScan(connection, await write(connection), None)
        assert await scan.bounds() == (1, COUNT)
        chance = random.Random(1)
        for start in [chance.randint(1, COUNT) for _ in range(60)]:
            assert await numbers_from(scan, start, 1) == [start]
        middle = list(range(COUNT // 3, COUNT // 3 + 900))
        assert await numbers_from(scan, middle[0], len(middle)) == middle
        steps = list(range(1, COUNT + 1, 1_000))
        assert await numbers_from(scan, 1, 99, step=1_000) == steps
        assert await numbers_from(scan, COUNT - 1, 9) == [COUNT - 1, COUNT]
        assert await numbers_from(scan, COUNT + 5, 9) == []
    finally:
        await connection.close()


async def test_a_scan_leaps_over_gaps(broker: Broker, vhost: str) -> None:
    """Of any width, again and again: it reads few entries, and tells of each gap on its way."""
    connection = await Connection.open(parse_url(broker.url_of(vhost)), name="test")
    try:
        stream = names.journal("orders")
        channel = await connection.channel()
        await channel.publisher.confirm_select()
        await channel.declarations.declare_queue(parts.journal("orders"))
        chance, number, numbers, gaps = random.Random(2), 0, list[int](), list[Gap]()
        entries = JournalEntries("orders")
        waits = []
        for _ in range(3_000):
            if chance.random() < 0.1:
                width = chance.choice([1, 50, 500, 5_000, 2**40])
                gaps.append(Gap(number + 1, number + width))
                entry = entries.note_gaps(gaps[-1:])
                waits.append(
                    channel.publisher.publish_confirmed("", stream, entry.properties, entry.body)
                )
                number += width
            number += 1
            numbers.append(number)
            fields = stamp.active(number, 1, stamp.NO_IDENTITY, None)
            properties = stamp.put(BARE, fields)
            waits.append(channel.publisher.publish_confirmed("", stream, properties, b"x"))
        await asyncio.gather(*waits)
        told = set[Gap]()
        scan = JournalScan(connection, stream, None, on_gap=told.add)
        assert await scan.bounds() == (numbers[0], numbers[-1])
        for place in [chance.randrange(len(numbers) - 20) for _ in range(60)]:
            assert await numbers_from(scan, numbers[place] - 1, 20) in (
                numbers[place - 1 : place + 19],
                numbers[place : place + 20],
            )
            assert await numbers_from(scan, numbers[place], 20) == numbers[place : place + 20]
        for gap in gaps[:60]:
            following = numbers[bisect_left(numbers, gap.last)]
            assert await numbers_from(scan, gap.first, 1) == [following]
            assert await numbers_from(scan, gap.last, 1) == [following]
        assert await numbers_from(scan, 1, len(numbers)) == numbers
        assert told == set(gaps)
    finally:
        await connection.close()


async def test_the_end_is_found_again_by_few_entries(broker: Broker, vhost: str) -> None:
    """Whether none, some or very many have come; the last chunk is not read each time."""
    connection = await Connection.open(parse_url(broker.url_of(vhost)), name="test")
    try:
        stream = await write(connection)
        scan = _CountingScan(connection, stream, None)
        assert await scan.bounds() == (1, COUNT)
        channel = await connection.channel()
        await channel.publisher.confirm_select()
        last = COUNT
        for more in (0, 3, NEW_MAX - 1, NEW_MAX, 2_000, 0):
            waits = []
            for number in range(last + 1, last + more + 1):
                properties = stamp.put(BARE, stamp.active(number, 1, stamp.NO_IDENTITY, None))
                publish = channel.publisher.publish_confirmed
                waits.append(publish("", stream, properties, b"x"))
            await asyncio.gather(*waits)
            last += more
            scan.seen = 0
            assert await scan.bounds() == (1, last)
            if more < NEW_MAX:
                assert scan.seen <= more + 1
        again = stamp.put(BARE, stamp.active(last - 5, 1, stamp.NO_IDENTITY, None))
        for each in (OTHER, again):  # one without a number, and one that is published once more
            await channel.publisher.publish_confirmed("", stream, each, b"x")
            for _ in range(2):
                assert await scan.bounds() == (1, last)
    finally:
        await connection.close()


async def test_bounds_hold_when_another_read_forgets_the_journal(
    broker: Broker, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found the journal silent, as on a RabbitMQ that does not answer for seconds."""
    monkeypatch.setattr(journal_scan, "FIRST_S", 0.0)
    connection = await Connection.open(parse_url(broker.url_of(vhost)), name="test")
    try:
        scan = _ForgettingScan(connection, await write(connection), None)
        for _ in range(3):
            assert await scan.bounds() == (1, COUNT)
            assert await numbers_from(scan, COUNT // 2, 1) == [COUNT // 2]
    finally:
        await connection.close()
