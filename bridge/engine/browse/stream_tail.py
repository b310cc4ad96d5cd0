"""Repeated reads of one stream: each read gives the entries that are new since the last one."""

from __future__ import annotations

import os
from collections.abc import Callable

from bridge.broker.errors import BrokerSilent
from bridge.broker.streams.stream_reader import FIRST, Entry, at, read_stream
from bridge.engine.ownership.services import Services
from bridge.wire.settled import PROPERTIES, Settled

PREFETCH = 2_000


class StreamTail:
    """One stream.

    Args:
        take: called with each entry once, in order.
    """

    def __init__(self, services: Services, stream: str, take: Callable[[Entry], None]) -> None:
        self._connections = services.connections
        self._sender = services.sender
        self._stream = stream
        self._take = take
        self._last: int | None = None

    async def catch_up(self) -> None:
        """Read the new entries.

        The first call writes an entry, so that the stream is not empty: its end can be awaited.

        Raises:
            Unroutable, NotFound: there is no such stream.
            ServerBusy, BrokerError: RabbitMQ takes or gives no entries now.
        """
        if self._last is None:
            await self._sender.publish(
                "", self._stream, PROPERTIES, Settled(mark=os.urandom(8)).encode()
            )
            start = FIRST
        else:
            start = at(self._last)
        try:
            await read_stream(
                self._connections, self._stream, start, self._on_entry, prefetch=PREFETCH
            )
        except BrokerSilent:
            self._last = None  # the stream may have been deleted and made again
            raise

    def _on_entry(self, entry: Entry) -> bool:
        if self._last is None or entry.offset > self._last:
            self._last = entry.offset
            self._take(entry)
        return False
