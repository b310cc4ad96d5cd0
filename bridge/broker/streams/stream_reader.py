"""Reading a stream: up to its present end, or up to an entry that exists or is being published.

RabbitMQ does not tell where a stream ends. But a channel's process delivers all entries that a
consumer's credit allows before it handles the channel's next request. So an entry that has not come
when that request is answered does not exist (4.0 and 4.3), or is not yet on the node that
the channel is connected to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from bridge.broker.connection.address import HasChannels
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.consumers import new_tag
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerSilent
from bridge.wire.basic import Properties

OFFSET = "x-stream-offset"
"""Argument with the start of a consumer, and header with the offset of an entry (RabbitMQ)."""

FIRST: tuple[str, object] = ("S", b"first")
LAST: tuple[str, object] = ("S", b"last")
"""A start at the last chunk, which contains some of the last entries."""
NEXT: tuple[str, object] = ("S", b"next")

EMPTY_S = 2.0
"""Time without a delivery after which a stream has no entry from the start on, or is silent."""

SILENCE_S = 10.0
"""Time without a delivery after which a read fails. After a restart of RabbitMQ a stream was seen
that never confirmed and never delivered, without an error."""

PREFETCH_MAX = 2_000


def at(offset: int) -> tuple[str, object]:
    """Return a start for reads: an offset, or the oldest entry when the offset's is gone."""
    return ("l", max(offset, 0))


def since(time_s: int) -> tuple[str, object]:
    """Return a start for reads: the entries since a time (UTC s), and some shortly before."""
    return ("T", max(time_s, 0))


class StreamEntry(NamedTuple):
    """One entry of a stream.

    Attributes:
        offset: the entry's offset; offsets rise, with gaps.
        properties: the entry's properties.
        body: the entry's body.
    """

    offset: int
    properties: Properties
    body: bytes


Take = Callable[[StreamEntry], bool]
"""Called with an entry; returns whether the entry is the last one wanted."""


class StreamRead(NamedTuple):
    """One stream that is read.

    Attributes:
        start: `FIRST`, `LAST`, `at` an offset or `since` a time.
    """

    stream: str
    start: tuple[str, object]
    take: Take


class _Reading:
    """One consumer of a stream: it counts deliveries, and stops when `take` returns True."""

    def __init__(self, channel: Channel, prefetch: int, read: StreamRead) -> None:
        self.channel = channel
        self.prefetch = prefetch
        self.read = read
        self.came = asyncio.Event()
        self._seen = 0
        self.last_tag = 0
        self.consumer = ""
        self._error: Exception | None = None
        self.count = 0
        self.is_enough = False

    def consume(self) -> asyncio.Future[Any]:
        """Start the consumer; return a future that is done when it has begun."""
        self.consumer = new_tag()
        return self.channel.consumers.consume_soon(
            self.read.stream,
            self._on_delivery,
            tag=self.consumer,
            prefetch=self.prefetch,
            arguments={OFFSET: self.read.start},
        )

    def _on_delivery(self, delivery: Delivery) -> None:
        self.count += 1
        self.last_tag = delivery.tag
        self.came.set()
        if self.is_enough:
            return
        try:
            entry = read_entry(delivery)
            self.is_enough = entry is not None and self.read.take(entry)
        except Exception as error:
            self._error, self.is_enough = error, True

    async def comes(self, within_s: float) -> bool:
        """Wait for a delivery since the last `go_on`; return whether one has come in time.

        Raises:
            BrokerError: the channel ended without a delivery.
        """
        return await comes(self.channel, self.came, within_s)

    def take_more(self) -> None:
        """Let RabbitMQ deliver more; raises the error of a failed `take`."""
        self.came.clear()
        self.channel.consumers.ack(self.last_tag, multiple=True)
        self.check()

    def check(self) -> None:
        """Raise the error of a failed `take`."""
        if self._error is not None:
            raise self._error

    def is_over(self) -> bool:
        """Whether all that was wanted has come, or nothing since the last look."""
        seen, self._seen = self._seen, self.count
        return self.is_enough or seen == self.count

    def end(self) -> None:
        """End the consumer when the channel serves another read after this one."""
        if self.channel.keeper is not None:
            self.is_enough = True
            self.channel.consumers.cancel(self.consumer)


async def comes(channel: Channel, came: asyncio.Event, within_s: float) -> bool:
    """Wait for a delivery of a channel; return whether it has come in time.

    Args:
        came: set by the delivery.

    Raises:
        BrokerError: the channel ended without a delivery.
    """
    if came.is_set():
        return True
    events = came, channel.closed
    waiting = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        await asyncio.wait(waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
    if channel.close_reason is not None and not came.is_set():
        raise channel.close_reason.again()
    return came.is_set()


async def _begin(*readings: _Reading) -> None:
    """Set the prefetch and start the consumers, in one packet to keep peeks fast."""
    for begun in [each.consume() for each in readings]:
        await begun


async def _go_on(*readings: _Reading) -> None:
    """Read all entries that exist now; raises the error of a failed `take`."""
    consumers = readings[0].channel.consumers
    for each in readings:
        each.came.clear()
    while True:
        over = [each.is_over() for each in readings]
        if all(over):
            break
        consumers.ack(max(each.last_tag for each in readings), multiple=True)
        await consumers.qos(readings[0].prefetch)
    for each in readings:
        each.check()


async def read_stream(
    connection: HasChannels,
    stream: str,
    start: tuple[str, object],
    take: Take,
    *,
    prefetch: int = 250,
    may_be_empty: bool = False,
) -> int:
    """Pass a stream's entries to `take`, oldest first, until the stream ends or `take` is True.

    Returns the number of entries that RabbitMQ has delivered.

    Args:
        start: `FIRST`, `LAST`, `at` an offset or `since` a time.
        prefetch: how many entries RabbitMQ delivers at a time.
        may_be_empty: whether the stream may have no entry from `start` on.

    Raises:
        NotFound: the stream does not exist.
        BrokerSilent: no entry comes within `EMPTY_S`, though one must exist.
        BrokerError: the channel ended.
    """
    read = StreamRead(stream, start, take)
    return await read_streams(connection, (read,), prefetch=prefetch, may_be_empty=may_be_empty)


async def read_streams(
    connection: HasChannels,
    reads: Sequence[StreamRead],
    *,
    prefetch: int = 250,
    may_be_empty: bool = False,
) -> int:
    """Read several streams on one channel, each as `read_stream` does.

    Returns the number of entries that RabbitMQ has delivered.
    """
    # Acks of a stream settle nothing, so the channel is left without waiting.
    with await connection.channel() as channel:
        readings = [_Reading(channel, prefetch, each) for each in reads]
        await _begin(*readings)
        for each in readings:
            if not await each.comes(EMPTY_S) and not may_be_empty:
                raise silent(each.read.stream)
        await _go_on(*readings)
        for each in readings:
            each.end()
    return sum(each.count for each in readings)


async def read_until(
    connection: HasChannels,
    stream: str,
    start: tuple[str, object],
    take: Take,
    *,
    prefetch: int = PREFETCH_MAX,
    publish: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Pass a stream's entries to `take`, oldest first, until `take` returns True.

    Args:
        publish: publishes the last entry to read, and returns when it is confirmed; None when
            that entry exists already.

    Raises:
        BrokerError: the channel ended, or the stream delivers nothing for `SILENCE_S`.
    """
    with await connection.channel() as channel:
        reading = _Reading(channel, prefetch, StreamRead(stream, start, take))
        await _begin(reading)
        if publish is not None:
            await publish()
        while not reading.is_enough:
            if not await reading.comes(SILENCE_S):
                raise silent(stream)
            await _go_on(reading)
        await _go_on(reading)


async def read_range(
    connection: HasChannels, stream: str, start: int, end: int, take: Callable[[StreamEntry], None]
) -> None:
    """Pass the entries from `start` to `end`, both included, to `take`; missing ones are skipped.

    Args:
        start: an offset.
        end: an offset that the stream has reached.
        take: called with each entry, oldest first.

    Raises:
        BrokerError: the channel ended, or the stream delivers nothing for `SILENCE_S`.
    """

    def pass_on(entry: StreamEntry) -> bool:
        if start <= entry.offset <= end:
            take(entry)
        return entry.offset >= end

    if start <= end:
        prefetch = min(end - start + 1, PREFETCH_MAX)
        await read_until(connection, stream, at(start), pass_on, prefetch=prefetch)


class StreamFollower:
    """Reads what is published to a stream from now on; one consumer serves several reads."""

    def __init__(self, channel: Channel, stream: str) -> None:
        self._stream = stream
        self._entries: list[StreamEntry] = []
        self._reading = _Reading(channel, PREFETCH_MAX, StreamRead(stream, NEXT, self._take))

    @classmethod
    @asynccontextmanager
    async def open(cls, connection: HasChannels, stream: str) -> AsyncIterator[StreamFollower]:
        """Follow a stream for as long as the block lasts.

        Raises:
            BrokerError: the stream does not exist, or the channel ended.
        """
        with await connection.channel() as channel:
            follower = cls(channel, stream)
            await _begin(follower._reading)
            yield follower

    async def read_to_own(
        self, publish: Callable[[], Awaitable[None]], is_own: Callable[[StreamEntry], bool]
    ) -> list[StreamEntry]:
        """Publish an entry; return all entries since the last read up to this one, included.

        Args:
            publish: publishes the entry, and returns when it is confirmed.
            is_own: whether an entry of the stream is the published one.

        Raises:
            BrokerError: the channel ended, or the stream delivers nothing for `SILENCE_S`.
        """
        await publish()
        looked = 0
        while True:
            for at in range(looked, len(self._entries)):
                if is_own(self._entries[at]):
                    read, self._entries = self._entries[: at + 1], self._entries[at + 1 :]
                    return read
            looked = len(self._entries)
            if not await self._reading.comes(SILENCE_S):
                raise silent(self._stream)
            self._reading.take_more()

    def _take(self, entry: StreamEntry) -> bool:
        self._entries.append(entry)
        return False


async def find_own(
    connection: HasChannels,
    stream: str,
    publish: Callable[[], Awaitable[None]],
    is_own: Callable[[StreamEntry], bool],
) -> int:
    """Publish an entry to a stream, and return its offset; the rest as `read_to_own`."""
    async with StreamFollower.open(connection, stream) as follower:
        return (await follower.read_to_own(publish, is_own))[-1].offset


def read_entry(delivery: Delivery) -> StreamEntry | None:
    """Return the entry of a delivery; None when it cannot be read, for anybody may publish."""
    try:
        properties = Properties.decode(delivery.properties)
    except ValueError:
        return None
    offset = (properties.headers or {}).get(OFFSET, ("V", None))[1]
    return StreamEntry(offset, properties, delivery.body) if isinstance(offset, int) else None


def silent(stream: str) -> BrokerSilent:
    """Return the error of a stream that gives no entry where one must be."""
    return BrokerSilent(text=f"the stream {stream!r} says nothing")
