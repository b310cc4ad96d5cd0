"""Reading the journal of an entity, a stream, over a channel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bridge.broker.connection.address import HasChannels
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerSilent
from bridge.wire.basic import Properties, Table

OFFSET = "x-stream-offset"
"""Where a stream's consumer begins, and where each message stands (RabbitMQ's own name)."""

SILENCE_S = 10.0
"""So long nothing comes from a stream before it is given up: after a restart a stream was seen that
never confirmed and never delivered, with no error."""

_PREFETCH = 2_000
_PREFETCH_LARGE = 100
_ACK_EVERY = 256


class Entry(NamedTuple):
    """One entry of a journal.

    Attributes:
        offset: where it stands; offsets rise, and some are missing.
        properties: the entry's.
        body: likewise.
    """

    offset: int
    properties: Properties
    body: bytes


def read_entry(delivery: Delivery) -> Entry | None:
    """Return what a stream has delivered; `None` when it cannot be read: anybody may publish."""
    try:
        properties = Properties.decode(delivery.properties)
    except ValueError:
        return None
    offset = (properties.headers or {}).get(OFFSET, ("V", None))[1]
    return Entry(offset, properties, delivery.body) if isinstance(offset, int) else None


Take = Callable[[Entry], bool]
"""Takes one entry; says whether it was the last that is wanted."""


class JournalReader:
    """Reads one journal."""

    def __init__(self, connection: HasChannels, stream: str) -> None:
        self._connection = connection
        self._stream = stream

    async def find_own(
        self, publish: Callable[[], Awaitable[None]], is_own: Callable[[Entry], bool]
    ) -> int:
        """Publish an entry, and return the offset at which it stands.

        Args:
            publish: publishes it, and returns when it is confirmed.
            is_own: whether an entry is it.

        Raises:
            BrokerError: the channel ended, or the stream says nothing.
        """
        found: list[int] = []

        def take(entry: Entry) -> bool:
            if is_own(entry):
                found.append(entry.offset)
            return bool(found)

        await self._consume(("S", b"next"), _PREFETCH, take, publish)
        return found[0]

    async def first(self) -> int:
        """Return the offset of the oldest entry that RabbitMQ has; there must be one.

        Raises:
            BrokerError: the channel ended, or the stream says nothing.
        """
        found: list[int] = []

        def take(entry: Entry) -> bool:
            found.append(entry.offset)
            return True

        await self._consume(("S", b"first"), 1, take, None)
        return found[0]

    async def read(self, start: int, end: int, take: Callable[[Entry], None]) -> None:
        """Hand over the entries from `start` to `end`, both included, as far as they are there.

        Args:
            start: an offset.
            end: an offset that the journal has reached.
            take: called with each entry, oldest first.

        Raises:
            BrokerError: the channel ended, or the stream says nothing.
        """

        def pass_on(entry: Entry) -> bool:
            if start <= entry.offset <= end:
                take(entry)
            return entry.offset >= end

        if start <= end:
            prefetch = min(end - start + 1, _PREFETCH)
            await self._consume(("l", max(start, 0)), prefetch, pass_on, None)

    async def read_since(
        self,
        since_s: int,
        take: Callable[[Entry], None],
        publish: Callable[[], Awaitable[None]],
        is_own: Callable[[Entry], bool],
    ) -> None:
        """Hand over what was published since a time (UTC s), up to an entry of one's own.

        What is a little older may come, too: a stream is read in chunks.

        Args:
            take: called with each entry, oldest first.
            publish: publishes one's own, and returns when it is confirmed.
            is_own: whether an entry is it.

        Raises:
            BrokerError: the channel ended, or the stream says nothing.
        """

        def pass_on(entry: Entry) -> bool:
            if is_own(entry):
                return True
            take(entry)
            return False

        await self._consume(("T", max(since_s, 0)), _PREFETCH_LARGE, pass_on, publish)

    async def _consume(
        self,
        offset: tuple[str, object],
        prefetch: int,
        take: Take,
        announce: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Read from an offset on until `take` says that it was enough."""
        channel = await self._connection.channel()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        count = 0
        ack_every = min(_ACK_EVERY, prefetch)

        def on_delivery(delivery: Delivery) -> None:
            nonlocal count
            count += 1
            if done.done():
                return
            entry = read_entry(delivery)
            if entry is None:
                return
            try:
                if take(entry):
                    done.set_result(None)
                elif count % ack_every == 0:
                    channel.consumers.ack(delivery.tag, multiple=True)
            except Exception as error:
                done.set_exception(error)

        try:
            await channel.consumers.qos(prefetch)
            arguments: Table = {OFFSET: offset}
            await channel.consumers.consume(self._stream, on_delivery, arguments=arguments)
            if announce is not None:
                await announce()
            await self._wait(channel, done, lambda: count)
        finally:
            if done.done() and not done.cancelled():
                done.exception()
            await channel.close()

    async def _wait(
        self, channel: Channel, done: asyncio.Future[None], count: Callable[[], int]
    ) -> None:
        while not done.done():
            before = count()
            if not await is_done(channel, done, SILENCE_S) and count() == before:
                raise BrokerSilent(text=f"the stream {self._stream!r} says nothing")
        await done


async def is_done(channel: Channel, future: asyncio.Future[None], within_s: float) -> bool:
    """Whether a future is done within a time; raises what has ended the channel before."""
    closed = asyncio.ensure_future(channel.closed.wait())
    try:
        await asyncio.wait((future, closed), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        closed.cancel()
    if channel.close_reason is not None and not future.done():
        raise channel.close_reason.again()
    return future.done()
