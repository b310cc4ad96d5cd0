"""Readers of streams that stand between reads: each read has all that was confirmed before it."""

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
from bridge.broker.streams.standing_reader import (
    READERS_MAX,
    SURPLUS_MAX,
    UNACKED,
    StandingReader,
    StandingReaders,
)
from bridge.broker.streams.stream_reader import StreamEntry, StreamRead, at
from bridge.topology import names, parts
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.counting_calls import Calls
from tests.fixtures.waiting import until

STREAMS = [names.journal("one"), names.journal("two")]
BARE = Properties(delivery_mode=2).encode()
MANY = SURPLUS_MAX + 50


class Tail:
    """All entries of one stream, each once."""

    def __init__(self, stream: str) -> None:
        self.bodies: list[bytes] = []
        self._stream = stream
        self._last = -1

    def read(self) -> StreamRead:
        """Return how a new reader goes on."""
        return StreamRead(self._stream, at(self._last - UNACKED + 1), self._take)

    def _take(self, entry: StreamEntry) -> bool:
        if entry.offset > self._last:
            self._last = entry.offset
            self.bodies.append(entry.body)
        return False


class Follower:
    """Reads streams again and again, as an entity's view does."""

    def __init__(self, connection: Connection, *streams: str) -> None:
        self.tails = [Tail(each) for each in streams]
        self.kept = KeptChannels(connection)
        self.standing = StandingReaders()
        self.opened = 0

    async def read(self, prefetch: int = 250) -> None:
        """Read what is new."""
        reader = self.standing.take(self)
        if reader is None:
            self.opened += 1
            reads = [each.read() for each in self.tails]
            reader = await StandingReader.open(self.kept, reads, prefetch=prefetch)
        else:
            await reader.read()
        self.standing.put(self, reader)


async def make(channel: Channel, stream: str, count: int) -> None:
    """Make a stream with so many entries."""
    await channel.declarations.declare_queue(parts.journal(stream.removesuffix("/$journal")))
    await publish(channel, stream, 0, count)


async def publish(channel: Channel, stream: str, first: int, count: int) -> None:
    """Publish entries, and return when all are confirmed."""
    confirmed = channel.publisher.publish_confirmed
    bodies = (b"%d" % each for each in range(first, first + count))
    await asyncio.gather(*(confirmed("", stream, BARE, body) for body in bodies))


async def _play(broker: Broker, vhost: str, turns: list[tuple[int, int, bool]]) -> None:
    endpoint = parse_url(broker.url_of(vhost))
    reading = await Connection.open(endpoint, name="reads")
    writing = await Connection.open(endpoint, name="writes")
    try:
        channel = await writing.channel()
        await channel.publisher.confirm_select()
        for stream in STREAMS:
            await make(channel, stream, 1)
        follower, written = Follower(reading, *STREAMS), [1, 1]
        for *counts, is_beside in turns:
            publishes = [
                publish(channel, stream, first, count)
                for stream, first, count in zip(STREAMS, written, counts, strict=True)
            ]
            confirmed = list(written)
            written = [first + count for first, count in zip(written, counts, strict=True)]
            if is_beside:
                await asyncio.gather(follower.read(), *publishes)
            else:
                await asyncio.gather(*publishes)
                confirmed = list(written)
                await follower.read()
            for tail, least, most in zip(follower.tails, confirmed, written, strict=True):
                assert least <= len(tail.bodies) <= most
                assert tail.bodies == [b"%d" % each for each in range(len(tail.bodies))]
        for stream in STREAMS:
            await channel.declarations.delete_queue(stream)
    finally:
        await reading.close()
        await writing.close()


def test_a_read_has_all_that_was_confirmed_before_it(broker: Broker, vhost: str) -> None:
    """Each entry once and in order; none, some, many, and beside publishes of others."""
    counts = st.sampled_from([0, 0, 0, 1, 2, UNACKED, MANY])
    turns = st.lists(st.tuples(counts, counts, st.booleans()), min_size=1, max_size=25)

    @settings(max_examples=30, deadline=None)
    @given(turns)
    def holds(turns: list[tuple[int, int, bool]]) -> None:
        asyncio.run(_play(broker, vhost, turns))

    holds()


async def test_a_read_asks_rabbitmq_once_and_starts_no_consumer(
    connection: Connection, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the streams have as many entries as are kept unacked, and readers are young."""
    monkeypatch.setattr(standing_reader, "LIFE_S", 3_600.0)
    monkeypatch.setattr(standing_reader, "IDLE_S", 3_600.0)
    for stream in STREAMS:
        await make(confirming, stream, 2 * UNACKED)
    follower, calls = Follower(connection, *STREAMS), Calls()
    await follower.read()
    with calls.of("/bridge/broker/connection/") as found:
        for _ in range(UNACKED - 1):
            await follower.read()
    assert found["broker/connection/calls.py:ask"] == UNACKED - 1
    assert found["broker/connection/consumers.py:consume_soon"] == 0
    assert found["broker/connection/channel.py:open"] == 0
    for _ in range(3 * (UNACKED + 1)):
        await follower.read()
    assert follower.opened == 4


async def test_entries_of_which_few_are_let_through_at_a_time_all_come(
    connection: Connection, confirming: Channel
) -> None:
    """A prefetch ends a round, not the read."""
    await make(confirming, STREAMS[0], MANY)
    follower = Follower(connection, STREAMS[0])
    await follower.read(UNACKED + 1)
    assert len(follower.tails[0].bodies) == MANY
    await publish(confirming, STREAMS[0], MANY, MANY)
    await follower.read()
    assert len(follower.tails[0].bodies) == 2 * MANY


async def test_a_reader_of_a_deleted_stream_ends(
    connection: Connection, confirming: Channel
) -> None:
    """The next one finds that the stream is gone, or that it is another one."""
    await make(confirming, STREAMS[0], 2 * UNACKED)
    follower = Follower(connection, STREAMS[0])
    await follower.read()
    await confirming.declarations.delete_queue(STREAMS[0])

    async def is_noticed() -> bool:
        try:
            await follower.read()
        except NotFound:
            return True
        return False

    await until(is_noticed)
    await make(confirming, STREAMS[0], 1)
    with pytest.raises(BrokerSilent):
        await follower.read()


async def test_few_readers_stand_and_not_for_long(
    connection: Connection, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their channels go back to those that are kept, and have no consumers there."""
    monkeypatch.setattr(standing_reader, "IDLE_S", 0.5)
    await make(confirming, STREAMS[0], UNACKED)
    kept, standing = KeptChannels(connection), StandingReaders()
    for key in range(READERS_MAX + 2):
        read = Tail(STREAMS[0]).read()
        standing.put(key, await StandingReader.open(kept, [read], prefetch=UNACKED + 1))
        assert len(standing) <= READERS_MAX
    assert standing.take(0) is None

    async def is_free() -> bool:
        with await kept.channel() as channel:
            return not len(standing) and not channel.consumers.is_busy

    await until(is_free)


async def test_what_comes_between_reads_is_kept_for_the_next_one(
    connection: Connection, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not passed on before; nor kept, when it is much: then it is read again."""
    monkeypatch.setattr(standing_reader, "LIFE_S", 3_600.0)
    monkeypatch.setattr(standing_reader, "IDLE_S", 3_600.0)
    await make(confirming, STREAMS[0], 2 * UNACKED)
    follower = Follower(connection, STREAMS[0])
    (tail,) = follower.tails
    await follower.read()
    await publish(confirming, STREAMS[0], 2 * UNACKED, 1)
    ((reader, _),) = follower.standing._standing.values()
    consumer = reader._consumers[0]
    await until(lambda: consumer.count == 2 * UNACKED + 1)
    assert len(tail.bodies) == 2 * UNACKED
    await follower.read()
    assert len(tail.bodies) == 2 * UNACKED + 1
    assert follower.opened == 1
    large = bytes(standing_reader.KEPT_BYTES_MAX // 2 + 1)
    for _ in range(2):
        await confirming.publisher.publish_confirmed("", STREAMS[0], BARE, large)
    await until(lambda: not reader.is_usable)
    await follower.read()
    assert tail.bodies[-2:] == [large, large]
    assert len(tail.bodies) == 2 * UNACKED + 3
    assert follower.opened == 2


async def test_a_reader_ends_at_some_age_however_often_it_is_used(
    connection: Connection, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one begins with an entry that is there: so a silent consumer is not believed long."""
    monkeypatch.setattr(standing_reader, "LIFE_S", 0.3)
    await make(confirming, STREAMS[0], 10 * UNACKED)
    follower = Follower(connection, STREAMS[0])

    async def is_renewed() -> bool:
        await follower.read()
        return follower.opened > 1

    await until(is_renewed)


async def test_what_a_failing_take_raises_is_raised_by_the_read(
    connection: Connection, confirming: Channel
) -> None:
    """The reader has ended then, with its channel."""
    await make(confirming, STREAMS[0], 1)
    kept = KeptChannels(connection)

    def fail(entry: StreamEntry) -> bool:
        raise ValueError(f"entry {entry.offset}")

    with pytest.raises(ValueError, match="entry 0"):
        await StandingReader.open(kept, [StreamRead(STREAMS[0], at(0), fail)], prefetch=9)
    assert len(kept) == 0
