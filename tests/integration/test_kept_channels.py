"""Channels that are kept for the next short exchange: each exchange is as on a new channel."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.broker.connection.kept_channels import KEPT_MAX, KeptChannels
from bridge.broker.errors import NotFound
from bridge.broker.ready_counts import ReadyCounts
from bridge.broker.streams.stream_reader import StreamEntry, StreamRead, at, read_streams
from bridge.topology import names, parts
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until

STREAMS = [names.journal("one"), names.journal("two")]
COUNT = 40
BARE = Properties(delivery_mode=2).encode()

One = tuple[int, int, int]
"""A stream, the offset of the first entry, and how many entries are wanted."""


async def fill(channel: Channel, stream: str, *bodies: bytes) -> None:
    """Make a stream with these entries."""
    await channel.declarations.declare_queue(parts.journal(stream.removesuffix("/$journal")))
    publish = channel.publisher.publish_confirmed
    await asyncio.gather(*(publish("", stream, BARE, body) for body in bodies))


class Wanted:
    """The bodies of one read from an offset on, up to a count."""

    def __init__(self, start: int, count: int) -> None:
        self.bodies: list[bytes] = []
        self._start = start
        self._count = count

    def take(self, entry: StreamEntry) -> bool:
        """Take an entry; return whether it is the last one wanted."""
        if entry.offset >= self._start:
            self.bodies.append(entry.body)
        return len(self.bodies) >= self._count


async def read(kept: KeptChannels, ones: list[One], prefetch: int) -> list[list[bytes]]:
    """Read streams together, on one channel."""
    wanted = [Wanted(start, count) for _, start, count in ones]
    reads = [
        StreamRead(STREAMS[stream], at(start), each.take)
        for (stream, start, _), each in zip(ones, wanted, strict=True)
    ]
    await read_streams(kept, reads, prefetch=prefetch)
    return [each.bodies for each in wanted]


async def _play(broker: Broker, vhost: str, turns: list[list[tuple[list[One], int]]]) -> None:
    connection = await Connection.open(parse_url(broker.url_of(vhost)), name="test")
    kept = KeptChannels(connection)
    try:
        for turn in turns:
            found = await asyncio.gather(*(read(kept, ones, size) for ones, size in turn))
            for (ones, _), bodies in zip(turn, found, strict=True):
                for (stream, start, count), each in zip(ones, bodies, strict=True):
                    last = min(start + count, COUNT)
                    assert each == [b"%d of %d" % (at, stream) for at in range(start, last)]
        assert len(kept) <= max(map(len, turns), default=0)
    finally:
        await connection.close()


@pytest.mark.long
def test_reads_on_kept_channels_have_all_their_entries_and_no_others(
    broker: Broker, vhost: str
) -> None:
    """One after another and at the same time, of one stream or two, whole and broken off."""

    async def make() -> None:
        connection = await Connection.open(parse_url(broker.url_of(vhost)), name="test")
        channel = await connection.channel()
        await channel.publisher.confirm_select()
        for stream, name in enumerate(STREAMS):
            await fill(channel, name, *(b"%d of %d" % (each, stream) for each in range(COUNT)))
        await connection.close()

    one = st.tuples(st.integers(0, 1), st.integers(0, COUNT - 1), st.integers(1, COUNT))
    reads = st.tuples(st.lists(one, min_size=1, max_size=3), st.sampled_from([1, 2, 7, 250]))
    turns = st.lists(st.lists(reads, min_size=1, max_size=3), min_size=1, max_size=6)

    @settings(max_examples=40, deadline=None)
    @given(turns)
    def holds(turns: list[list[tuple[list[One], int]]]) -> None:
        asyncio.run(_play(broker, vhost, turns))

    asyncio.run(make())
    holds()


async def test_a_stream_that_is_made_again_is_read_anew(
    connection: Connection, confirming: Channel
) -> None:
    """What RabbitMQ's channel knew of the deleted stream is forgotten.

    Each life is filled over a channel of its own: another one may publish to the deleted stream
    (docs/rabbitmq-faults.md: publish-to-deleted).
    """
    kept = KeptChannels(connection)
    for life in range(5):
        with await connection.channel() as channel:
            await channel.publisher.confirm_select()
            await fill(channel, STREAMS[0], b"%d" % life)
        assert await read(kept, [(0, 0, 9)], 250) == [[b"%d" % life]]
        await confirming.declarations.delete_queue(STREAMS[0])
    with pytest.raises(NotFound):
        await read(kept, [(0, 0, 9)], 250)


async def test_a_channel_serves_one_exchange_after_another(
    connection: Connection, confirming: Channel
) -> None:
    """A second channel is opened only for an exchange at the same time."""
    kept = KeptChannels(connection)
    await fill(confirming, STREAMS[0], b"0")
    for _ in range(3):
        await read(kept, [(0, 0, 9)], 250)
        await ReadyCounts(kept).ask([STREAMS[0]])
    assert len(kept) == 1
    with await kept.channel() as first, await kept.channel() as second:
        assert first is not second
    assert len(kept) == 2


async def test_a_channel_whose_exchange_failed_is_closed(connection: Connection) -> None:
    """By RabbitMQ, or by the bridge when the exchange was broken off."""
    kept = KeptChannels(connection)
    await ReadyCounts(kept).ask(["none"])
    assert len(kept) == 0
    with pytest.raises(ValueError, match="broken off"), await kept.channel() as channel:
        raise ValueError("broken off")
    assert len(kept) == 0
    assert channel.close_reason is not None


async def test_a_kept_channel_does_not_collect_what_nobody_has_read(
    connection: Connection, confirming: Channel
) -> None:
    """RabbitMQ sends ahead of a read that is broken off, and keeps what is not acked.

    What is on its way when the read ends is acked at the end of the next one.
    """
    kept = KeptChannels(connection)
    await fill(confirming, STREAMS[0], *(b"%d" % each for each in range(COUNT)))
    for _ in range(10):
        assert await read(kept, [(0, 0, 1)], 250) == [[b"0"]]
    assert len(kept) == 1
    with await kept.channel() as channel:
        assert channel.consumers.outstanding <= 2 * COUNT


async def test_a_channel_that_owes_an_answer_is_not_kept(
    connection: Connection, confirming: Channel
) -> None:
    """Whoever asked next on it would wait for that answer, and fail with the 404 that it is."""
    kept = KeptChannels(connection)
    await fill(confirming, STREAMS[0], b"0")
    await ReadyCounts(kept).ask([STREAMS[0]])
    assert len(kept) == 1
    asking = asyncio.create_task(ReadyCounts(kept).ask(["none"]))
    while len(kept):  # noqa: ASYNC110 - the question leaves in this turn, before any answer
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(kept) == 0
    assert await read(kept, [(0, 0, 9)], 250) == [[b"0"]]


async def test_a_channel_is_closed_at_some_age_however_often_it_is_used(
    connection: Connection, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ's channel keeps something for each stream that was ever read on it."""
    monkeypatch.setattr("bridge.broker.connection.kept_channels.LIFE_S", 0.5)
    kept = KeptChannels(connection)
    await fill(confirming, STREAMS[0], b"0")
    first = await kept.channel()
    with first:
        pass
    assert len(kept) == 1

    async def is_closed() -> bool:
        assert await read(kept, [(0, 0, 9)], 250) == [[b"0"]]
        return first.close_reason is not None

    await until(is_closed)


async def test_few_channels_are_kept_and_not_for_long(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are closed at once, these some seconds after the last exchange."""
    monkeypatch.setattr("bridge.broker.connection.kept_channels.KEPT_S", 0.5)
    kept = KeptChannels(connection)
    channels = [await kept.channel() for _ in range(KEPT_MAX + 2)]
    for channel in channels:
        with channel:
            pass
    assert len(kept) == KEPT_MAX
    await until(lambda: len(kept) == 0)
    assert all(channel.close_reason is not None for channel in channels)
