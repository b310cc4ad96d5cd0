"""Readers of streams that stand between reads: a read costs one question, and no new consumer.

What was published since the last read may be on its way inside RabbitMQ. But an ack makes a
channel's process read on in the stream, to its end or as far as the credit goes, before it handles
the next request (4.0 and 4.3). So a reader keeps some deliveries of each stream unacked. A read
acks one of each, and asks the channel something: when that is answered, all is there.

What comes between reads is kept for the next one, so that who reads decides when it counts. When
that is much, the reader ends, and the next one reads it again.

That a consumer still lives is proven only by a delivery. So a reader ends after `LIFE_S` even if it
is used, and the next one begins with an entry that is known to be there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from bridge.broker.connection.address import HasChannels
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.consumers import new_tag
from bridge.broker.connection.delivery import Delivery
from bridge.broker.streams.stream_reader import (
    EMPTY_S,
    OFFSET,
    StreamRead,
    comes,
    read_entry,
    silent,
)

UNACKED = 8
"""The deliveries of a stream that are kept unacked at most: as many reads need no new consumer."""

SURPLUS_MAX = 100
"""Deliveries above which all of a channel are acked at once, and a new reader stands next."""

IDLE_S = 5.0
"""Time after its last read after which a reader ends."""

LIFE_S = 10.0
"""Age at which a reader ends. A consumer whose stream was moved in RabbitMQ may say nothing."""

KEPT_BYTES_MAX = 1 << 20
"""Bytes that come between two reads of a stream, above which its reader ends."""

READERS_MAX = 96
"""Readers that stand at a time; the one that was used first ends."""


class StandingReader:
    """Reads the entries of some streams that are new since its last read."""

    def __init__(
        self, channel: Channel, reads: Sequence[StreamRead], prefetch: int, unacked: int
    ) -> None:
        self._channel = channel
        self._prefetch = prefetch
        self._unacked = unacked
        self._consumers = [_Consumer(channel, each, self.end) for each in reads]
        self._has_ended = False
        self._until_s = asyncio.get_running_loop().time() + LIFE_S

    @classmethod
    async def open(
        cls,
        channels: HasChannels,
        reads: Sequence[StreamRead],
        *,
        prefetch: int,
        unacked: int = UNACKED,
    ) -> StandingReader:
        """Return a reader that has read the streams, each from its own start, as `read` does.

        Args:
            prefetch: how many entries of a stream RabbitMQ delivers at a time.
            unacked: how many deliveries of a stream are kept unacked at most; below `prefetch`.

        Raises:
            NotFound: a stream does not exist.
            BrokerSilent: a stream gives no entry within `EMPTY_S`.
            BrokerError: the channel ended.
        """
        assert prefetch > unacked
        reader = cls(await channels.channel(), reads, prefetch, unacked)
        try:
            await reader._begin()
        except BaseException:
            reader.abandon()
            raise
        return reader

    @property
    def is_usable(self) -> bool:
        """Whether another read finds all that is new."""
        if self._has_ended or self._channel.close_reason is not None:
            return False
        for each in self._consumers:
            if not each.unacked or each.has_ended or each.kept_bytes > KEPT_BYTES_MAX:
                return False
        return asyncio.get_running_loop().time() < self._until_s

    async def read(self) -> None:
        """Pass all entries to the streams' `take` that were confirmed before this call.

        What comes of a stream behind an entry whose `take` returns True is for the next read.

        Raises:
            BrokerError: the channel ended.
        """
        try:
            for each in self._consumers:
                each.go_on()
            await self._read_on()
        except BaseException:
            self.abandon()
            raise

    async def _begin(self) -> None:
        for begun in [each.consume(self._prefetch) for each in self._consumers]:
            await begun
        for each in self._consumers:
            if not await comes(self._channel, each.came, EMPTY_S):
                raise silent(each.read.stream)
        await self._read_on()

    async def _read_on(self) -> None:
        """Read until an answer of RabbitMQ comes behind no more entries."""
        qos, before = self._channel.consumers.qos, -1
        while True:
            count, is_enough = 0, True
            for each in self._consumers:
                count += each.count
                is_enough = is_enough and each.is_enough
            if is_enough or count == before:
                break
            before = count
            self._ack_surplus()
            await qos(self._prefetch)
        for each in self._consumers:
            each.is_reading = False
            if each.error is not None:
                raise each.error

    def _ack_surplus(self) -> None:
        for each in self._consumers:
            if len(each.unacked) > SURPLUS_MAX:
                break
            while len(each.unacked) > self._unacked:
                each.ack()
        else:
            return
        for each in self._consumers:
            each.unacked.clear()
        self._channel.consumers.ack_all()

    def end(self) -> None:
        """End the consumers, and leave the channel to others."""
        if self._has_ended or self._channel.close_reason is not None:
            return
        self._has_ended = True
        for each in self._consumers:
            each.end()
        with self._channel:
            pass

    def abandon(self) -> None:
        """End after a failure."""
        self._channel.abandon()


class _Consumer:
    """A consumer of one stream; from its begin to `pause` it passes on what comes until enough.

    Args:
        on_many: called when more has come between reads than is kept.

    Attributes:
        came: set by the first delivery.
        count: the deliveries so far.
        unacked: the tags of those that are not acked.
        kept_bytes: the size of those that have come since the last read.
        is_reading: entries are passed on.
        is_enough: the last entry of this read has come.
        has_ended: it passes nothing on any more.
        error: what `take` has raised.
    """

    def __init__(self, channel: Channel, read: StreamRead, on_many: Callable[[], None]) -> None:
        self.read = read
        self.count = 0
        self.unacked: deque[int] = deque()
        self._channel = channel
        self._on_many = on_many
        self.is_enough = False
        self.is_reading = True
        self._kept: deque[Delivery] = deque()
        self.kept_bytes = 0
        self._tag = ""
        self.has_ended = False
        self.error: Exception | None = None
        self.came = asyncio.Event()

    def consume(self, prefetch: int) -> asyncio.Future[Any]:
        self._tag = new_tag()
        return self._channel.consumers.consume_soon(
            self.read.stream,
            self._on_delivery,
            tag=self._tag,
            prefetch=prefetch,
            arguments={OFFSET: self.read.start},
            on_cancel=self._on_cancel,
        )

    def ack(self) -> None:
        """Ack the oldest delivery: RabbitMQ reads on."""
        self._channel.consumers.ack(self.unacked.popleft())

    def go_on(self) -> None:
        """Pass on what has come since the last read, and what comes from now on."""
        self.is_reading, self.is_enough = True, False
        while self._kept and not self.is_enough:
            delivery = self._kept.popleft()
            self.kept_bytes -= _size_bytes(delivery)
            self._pass_on(delivery)
        if not self.is_enough:
            self.ack()

    def end(self) -> None:
        """End the consumer; what still comes is ignored."""
        self.has_ended = True
        self._kept.clear()
        self._channel.consumers.cancel(self._tag)

    def _on_delivery(self, delivery: Delivery) -> None:
        self.count += 1
        if self.count == 1:
            self.came.set()
        if self.has_ended:
            return
        self.unacked.append(delivery.tag)
        if self.is_reading and not self.is_enough:
            self._pass_on(delivery)
            return
        self._kept.append(delivery)
        self.kept_bytes += _size_bytes(delivery)
        if self.kept_bytes > KEPT_BYTES_MAX and not self.is_reading:
            self._on_many()

    def _pass_on(self, delivery: Delivery) -> None:
        entry = read_entry(delivery)
        if entry is None or self.error is not None:
            return
        try:
            self.is_enough = self.read.take(entry)
        except Exception as error:
            self.error, self.is_enough = error, True

    def _on_cancel(self, tag: str) -> None:
        self.has_ended = True


def _size_bytes(delivery: Delivery) -> int:
    return len(delivery.properties) + len(delivery.body)


class StandingReaders:
    """The readers that stand while nobody reads."""

    def __init__(self) -> None:
        self._standing: dict[Hashable, tuple[StandingReader, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._standing)

    def take(self, key: Hashable) -> StandingReader | None:
        """Return the reader that was put here last, if it is usable, for one read."""
        found = self._standing.pop(key, None)
        if found is None:
            return None
        reader, timer = found
        timer.cancel()
        if reader.is_usable:
            return reader
        reader.end()
        return None

    def put(self, key: Hashable, reader: StandingReader) -> None:
        """Let a reader stand until the next read, or `IDLE_S`."""
        if key in self._standing:
            self.end(key)
        if len(self._standing) >= READERS_MAX:
            self.end(next(iter(self._standing)))
        timer = asyncio.get_running_loop().call_later(IDLE_S, partial(self.end, key))
        self._standing[key] = reader, timer

    def close(self) -> None:
        """End all."""
        for key in list(self._standing):
            self.end(key)

    def end(self, key: Hashable) -> None:
        """End the reader that was put here last, if it still stands."""
        found = self._standing.pop(key, None)
        if found is not None:
            reader, timer = found
            timer.cancel()
            reader.end()
