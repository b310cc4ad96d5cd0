"""Reading the tail of a journal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from bridge.broker.channel import Channel
from bridge.broker.connection import Connection
from bridge.broker.delivery import Delivery
from bridge.broker.errors import BrokerSilent
from bridge.wire import headers, journal
from bridge.wire.basic import Properties, Table

OFFSET = "x-stream-offset"
"""Where a stream's consumer begins, and where each message stands (RabbitMQ's own name)."""

SILENCE_S = 10.0
"""So long nothing comes from a stream before it is given up: after a restart a stream was seen that
never confirmed and never delivered, with no error."""

STEPS = (64, 512, 4_096)
"""How far back the first ranges go; each one after these is twice as long as the one before."""

_PREFETCH = 2_000
_ACK_EVERY = 256

Feed = Callable[[Properties, bytes], None]
"""Takes one entry of the journal."""


def steps() -> Iterator[int]:
    """Yield the lengths of the ranges that are tried, one after another."""
    yield from STEPS
    longest = STEPS[-1]
    while True:
        longest *= 2
        yield longest


class Tail:
    """Reads one journal from its end backwards, in growing ranges that are each read forwards.

    Attributes:
        end: the offset of this life's marker, the last entry to be read.
    """

    def __init__(self, connection: Connection, stream: str) -> None:
        self.end = -1
        self._connection = connection
        self._stream = stream

    async def mark(self, announce: Callable[[], Awaitable[None]], life: bytes) -> None:
        """Publish the marker of this life and find out where it stands.

        Args:
            announce: publishes it, and returns when it is confirmed.
            life: the identity that the marker holds.
        """

        def is_ours(properties: Properties, body: bytes) -> bool:
            kind = (properties.headers or {}).get(headers.ENTRY, ("V", None))[1]
            return kind == journal.MARKER.encode() and journal.Marker.decode(body).life == life

        found: list[int] = []

        def take(offset: int, properties: Properties, body: bytes) -> bool:
            if is_ours(properties, body):
                found.append(offset)
            return bool(found)

        await self._consume(("S", b"next"), take, announce)
        self.end = found[0]

    async def read(self, start: int, feed: Feed) -> int:
        """Feed the entries from `start` to the end; returns the offset of the first one."""
        first = -1

        def take(offset: int, properties: Properties, body: bytes) -> bool:
            nonlocal first
            if start <= offset <= self.end:
                first = offset if first < 0 else first
                feed(properties, body)
            return offset >= self.end

        await self._consume(("l", max(start, 0)), take, None)
        return first

    async def _consume(
        self,
        offset: tuple[str, object],
        take: Callable[[int, Properties, bytes], bool],
        announce: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Read from an offset on until `take` says that it was enough."""
        channel = await self._connection.channel()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        count = 0

        def on_delivery(delivery: Delivery) -> None:
            nonlocal count
            count += 1
            if done.done():
                return
            try:
                properties = Properties.decode(delivery.properties)
                stands = (properties.headers or {}).get(OFFSET, ("V", None))[1]
                assert isinstance(stands, int), "a stream says where each message stands"
                if take(stands, properties, delivery.body):
                    done.set_result(None)
                elif count % _ACK_EVERY == 0:
                    channel.ack(delivery.tag, multiple=True)
            except Exception as error:
                done.set_exception(error)

        try:
            await channel.qos(_PREFETCH)
            arguments: Table = {OFFSET: offset}
            await channel.consume(self._stream, on_delivery, arguments=arguments)
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
        closed = asyncio.ensure_future(channel.closed.wait())
        try:
            while not done.done():
                before = count()
                await asyncio.wait(
                    (done, closed), timeout=SILENCE_S, return_when=asyncio.FIRST_COMPLETED
                )
                if channel.close_reason is not None and not done.done():
                    raise channel.close_reason.again()
                if not done.done() and count() == before:
                    raise BrokerSilent(text=f"the stream {self._stream!r} says nothing")
            await done
        finally:
            closed.cancel()
