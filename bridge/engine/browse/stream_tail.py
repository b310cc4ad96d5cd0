"""Repeated reads of streams: each read gives the entries that are new since the last one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from bridge.broker.errors import BrokerSilent
from bridge.broker.streams.standing_reader import UNACKED, StandingReader
from bridge.broker.streams.stream_reader import FIRST, StreamEntry, StreamRead, at, silent
from bridge.engine.services import Services
from bridge.model.errors import ServerBusy
from bridge.wire.settled import PROPERTIES, Settled

PREFETCH = 2_000


class StreamTail:
    """One stream.

    Args:
        take: called with each entry once, in order.

    Attributes:
        stream: its name.
    """

    def __init__(
        self, services: Services, stream: str, take: Callable[[StreamEntry], None]
    ) -> None:
        self.stream = stream
        self._sender = services.sender
        self._take = take
        self._last: int | None = None
        self._body_hash = 0
        self._is_known = False
        self._is_other = False
        self._is_again = False
        self._has_marks = False

    async def begin(self) -> StreamRead:
        """Return how to read the new entries with a new consumer.

        The first call writes an entry, so that the stream is not empty: its end can be awaited.
        """
        self._is_known = self._is_other = False
        if self._last is None:
            await self._mark(1)
            return StreamRead(self.stream, FIRST, self._on_entry)
        self._is_again = True
        return StreamRead(self.stream, at(self._last - UNACKED + 1), self._on_entry)

    async def fill(self) -> None:
        """See to it that a stream that is read again has entries for a reader that stands.

        Only behind a read that has known the stream: another one would look like it then.
        """
        if self._is_again and not self._has_marks and self._last is not None:
            # While RabbitMQ has an alarm nothing is written, and readers stand shorter.
            with suppress(ServerBusy):
                await self._mark(max(UNACKED - 1 - self._last, 0))
                self._has_marks = True

    @property
    def is_known(self) -> bool:
        """Whether the last read came upon what was read before: the stream is not a new one."""
        return self._is_known

    def forget(self) -> None:
        """Begin anew: the stream may have been deleted and made again."""
        self._last = None
        self._is_again = self._has_marks = False

    async def _mark(self, count: int) -> None:
        bodies = (Settled(mark=os.urandom(8)).encode() for _ in range(count))
        await asyncio.gather(
            *(self._sender.publish("", self.stream, PROPERTIES, each) for each in bodies)
        )

    def _on_entry(self, entry: StreamEntry) -> bool:
        if self._is_other:
            return False
        if self._last is None or entry.offset > self._last:
            self._is_known = True
            self._last, self._body_hash = entry.offset, hash(entry.body)
            self._take(entry)
        elif entry.offset == self._last:
            self._is_known = hash(entry.body) == self._body_hash
            self._is_other = not self._is_known
        return False


class StreamTails:
    """The tails of several streams, which one reader reads; it stands until the next read.

    Args:
        tails: the streams.
    """

    def __init__(self, services: Services, tails: Sequence[StreamTail]) -> None:
        self._connections = services.connections
        self._tails = tails

    async def catch_up(self) -> None:
        """Read the new entries; only one read is made at a time.

        Raises:
            Unroutable, NotFound: one of the streams does not exist.
            ServerBusy, BrokerError: RabbitMQ takes or gives no entries now.
        """
        standing = self._connections.standing
        reader = standing.take(self)
        if reader is None:
            reader = await self._open()
        else:
            await reader.read()
        standing.put(self, reader)

    async def _open(self) -> StandingReader:
        reads = await asyncio.gather(*(each.begin() for each in self._tails))
        try:
            reader = await StandingReader.open(self._connections.looking, reads, prefetch=PREFETCH)
        except BrokerSilent:
            self._forget()
            raise
        if unknown := [each.stream for each in self._tails if not each.is_known]:
            reader.abandon()
            self._forget()
            raise silent(unknown[0])
        try:
            await asyncio.gather(*(each.fill() for each in self._tails))
        except BaseException:
            reader.abandon()
            raise
        return reader

    def _forget(self) -> None:
        for each in self._tails:
            if not each.is_known:
                each.forget()
