"""Looks for the present end of a journal, behind the last entry that is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.connection.address import HasChannels
from bridge.broker.streams.standing_reader import UNACKED, StandingReader, StandingReaders
from bridge.broker.streams.stream_reader import StreamEntry, StreamRead, at, silent

NEW_MAX = 16
"""The end is looked for behind the last known entry up to so many; the last chunk may have
thousands."""


class JournalEnd:
    """Reads on from the last known entry to the end, with a reader that stands between the looks.

    Args:
        stream: the journal.
        standing: where the reader stands; `None`: it ends with each look.
        see: called with each entry behind the last known one, and with some that are known.
    """

    def __init__(
        self,
        channels: HasChannels,
        stream: str,
        standing: StandingReaders | None,
        see: Callable[[StreamEntry], object],
    ) -> None:
        self._channels = channels
        self._stream = stream
        self._standing = standing
        self._see = see
        self._unacked = 1 if standing is None else UNACKED
        self._lock = asyncio.Lock()
        self._known = 0
        self._left = 0
        self._is_there = False

    async def look(self, known: int) -> bool:
        """Read what is new; return whether that has led to the journal's end.

        Args:
            known: the offset of the last known entry.

        Raises:
            BrokerSilent: the journal does not have the known entry.
            BrokerError: the channel ended.
        """
        async with self._lock:
            self._known, self._left = known, NEW_MAX
            reader = None if self._standing is None else self._standing.take(self)
            if reader is None:
                reader = await self._open()
            else:
                await reader.read()
            if self._standing is None or not self._left:
                reader.end()
            else:
                self._standing.put(self, reader)
            return self._left > 0

    async def _open(self) -> StandingReader:
        self._is_there = False
        first = at(self._known - self._unacked + 1)
        reader = await StandingReader.open(
            self._channels,
            (StreamRead(self._stream, first, self._take),),
            prefetch=NEW_MAX + self._unacked,
            unacked=self._unacked,
        )
        if not self._is_there:
            reader.abandon()
            raise silent(self._stream)
        return reader

    def _take(self, entry: StreamEntry) -> bool:
        self._see(entry)
        self._is_there = self._is_there or entry.offset >= self._known
        self._left -= entry.offset > self._known
        return not self._left
