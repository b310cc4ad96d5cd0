"""The end of a journal, looked for again and again by a reader that stands between the looks."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.broker.connection.kept_channels import KeptChannels
from bridge.broker.errors import BrokerSilent, NotFound
from bridge.broker.streams import standing_reader
from bridge.broker.streams.standing_reader import UNACKED, StandingReaders
from bridge.engine.browse.journal_end import NEW_MAX
from bridge.engine.browse.journal_scan import JournalScan
from bridge.topology import names, parts
from bridge.wire import journal, stamp
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.counting_calls import Calls
from tests.fixtures.waiting import until

BARE = Properties(delivery_mode=2, headers={"a": ("S", b"b")}).encode()
OTHER = journal.entry_properties(journal.BUCKET)
STREAM = names.journal("orders")
BEGUN = "broker/connection/consumers.py:consume_soon"


class Journal:
    """A journal that grows.

    Attributes:
        last: the highest number that was published.
        confirmed: the highest one that RabbitMQ has confirmed.
    """

    def __init__(self, channel: Channel) -> None:
        self.last = self.confirmed = 0
        self._channel = channel

    async def make(self, count: int) -> None:
        """Make it, with so many messages."""
        await self._channel.declarations.declare_queue(parts.journal("orders"))
        await self.grow(count)

    async def grow(self, count: int) -> None:
        """Write messages, now and then an entry without a number behind one."""
        publish, waits = self._channel.publisher.publish_confirmed, []
        for _ in range(count):
            self.last += 1
            fields = stamp.active(self.last, 1, stamp.NO_IDENTITY, None)
            waits.append(publish("", STREAM, stamp.put(BARE, fields), b"x"))
            if self.last % 5 == 0:
                waits.append(publish("", STREAM, OTHER, b"x"))
        last = self.last
        await asyncio.gather(*waits)
        self.confirmed = max(self.confirmed, last)

    async def delete(self) -> None:
        """Delete it."""
        await self._channel.declarations.delete_queue(STREAM)
        self.last = self.confirmed = 0


def scan_of(connection: Connection) -> JournalScan:
    """Return a scan whose readers stand."""
    return JournalScan(KeptChannels(connection), STREAM, None, standing=StandingReaders())


async def _play(broker: Broker, vhost: str, first: int, turns: list[tuple[int, bool, int]]) -> None:
    connection = await Connection.open(parse_url(broker.url_of(vhost)), name="test")
    try:
        channel = await connection.channel()
        await channel.publisher.confirm_select()
        written = Journal(channel)
        await written.make(first)
        scan = scan_of(connection)
        for count, is_beside, looks in turns:
            if is_beside:
                least = written.confirmed
                growing = asyncio.create_task(written.grow(count))
                await asyncio.sleep(0)
            else:
                await written.grow(count)
                growing, least = None, written.confirmed
            for bounds in await asyncio.gather(*(scan.bounds() for _ in range(looks))):
                assert bounds is not None
                assert bounds[0] == 1
                assert least <= bounds[1] <= written.last
            if growing is not None:
                await growing
        await written.delete()
    finally:
        await connection.close()


@pytest.mark.long
def test_each_look_finds_all_that_was_confirmed_before_it(broker: Broker, vhost: str) -> None:
    """Whether nothing, little or much has come, while more comes, and beside another look."""
    counts = st.sampled_from([0, 0, 0, 1, 2, UNACKED, NEW_MAX - 1, NEW_MAX, NEW_MAX + 1, 200])
    turns = st.lists(
        st.tuples(counts, st.booleans(), st.sampled_from([1, 1, 1, 2])), min_size=1, max_size=25
    )

    @settings(max_examples=40, deadline=None)
    @given(st.sampled_from([1, 3, UNACKED, 50]), turns)
    def holds(first: int, turns: list[tuple[int, bool, int]]) -> None:
        asyncio.run(_play(broker, vhost, first, turns))

    holds()


async def test_a_look_starts_no_consumer(
    connection: Connection, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where nothing has come nor where little has, but for one in many looks."""
    monkeypatch.setattr(standing_reader, "LIFE_S", 3_600.0)
    monkeypatch.setattr(standing_reader, "IDLE_S", 3_600.0)
    written = Journal(confirming)
    await written.make(50)
    scan, calls = scan_of(connection), Calls()
    for _ in range(2):
        assert await scan.bounds() == (1, 50)
    with calls.of("/bridge/broker/connection/") as found:
        for _ in range(UNACKED - 1):
            assert await scan.bounds() == (1, 50)
    assert found[BEGUN] == 0
    with calls.of("/bridge/broker/connection/") as found:
        for _ in range(3 * (UNACKED + 1)):
            await written.grow(1)
            assert await scan.bounds() == (1, written.last)
    assert found[BEGUN] <= 1


async def test_a_look_at_a_deleted_journal_fails_and_at_a_new_one_finds_its_end(
    connection: Connection, confirming: Channel
) -> None:
    """The new one has some of the offsets of the old one, all of them, or more."""
    for count in (1, UNACKED + 2, 3 * UNACKED):
        written = Journal(confirming)
        await written.make(2 * UNACKED)
        scan = scan_of(connection)
        for _ in range(2):
            assert await scan.bounds() == (1, 2 * UNACKED)
        await written.delete()

        async def is_noticed(scan: JournalScan = scan) -> bool:
            try:
                await scan.bounds()
            except NotFound:
                return True
            return False

        await until(is_noticed)
        await written.make(count)
        if count <= UNACKED + 2:
            with pytest.raises(BrokerSilent):
                await scan.bounds()
        assert await scan.bounds() == (1, count)
        await written.delete()
