"""Repeated reads of one stream: each read gives the entries that are new since the last one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from bridge.broker.connection.address import HasChannels
from bridge.broker.errors import BrokerSilent
from bridge.broker.streams.stream_reader import FIRST, StreamEntry, StreamRead, at, read_streams
from bridge.engine.services import Services
from bridge.wire.settled import PROPERTIES, Settled

PREFETCH = 2_000


class StreamTail:
    """One stream.

    Args:
        take: called with each entry once, in order.
    """

    def __init__(
        self, services: Services, stream: str, take: Callable[[StreamEntry], None]
    ) -> None:
        self._sender = services.sender
        self._stream = stream
        self._take = take
        self._last: int | None = None
        self._is_silent = True

    async def begin(self) -> StreamRead:
        """Return how to read the new entries.

        The first call writes an entry, so that the stream is not empty: its end can be awaited.
        """
        self._is_silent = True
        if self._last is not None:
            return StreamRead(self._stream, at(self._last), self._on_entry)
        mark = Settled(mark=os.urandom(8))
        await self._sender.publish("", self._stream, PROPERTIES, mark.encode())
        return StreamRead(self._stream, FIRST, self._on_entry)

    def failed(self) -> None:
        """Begin anew if no entry has come: the stream may have been deleted and made again."""
        if self._is_silent:
            self._last = None

    def _on_entry(self, entry: StreamEntry) -> bool:
        self._is_silent = False
        if self._last is None or entry.offset > self._last:
            self._last = entry.offset
            self._take(entry)
        return False


async def catch_up(channels: HasChannels, tails: Sequence[StreamTail]) -> None:
    """Read the new entries of several streams.

    Raises:
        Unroutable, NotFound: one of the streams does not exist.
        ServerBusy, BrokerError: RabbitMQ takes or gives no entries now.
    """
    reads = await asyncio.gather(*(each.begin() for each in tails))
    try:
        await read_streams(channels, reads, prefetch=PREFETCH)
    except BrokerSilent:
        for each in tails:
            each.failed()
        raise
