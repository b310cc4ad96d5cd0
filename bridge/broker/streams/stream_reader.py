"""Reading a stream: up to its present end, or up to an entry that is there, or will be.

RabbitMQ does not say where a stream ends. But the process of a channel hands out all that a
consumer's credit allows before it turns to the channel's next request: so what has not come when
that is answered is not there (3.10, 4.0 and 4.3), or not yet on the node that reads.
"""

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

FIRST: tuple[str, object] = ("S", b"first")
LAST: tuple[str, object] = ("S", b"last")
"""The last chunk: some of the last entries."""

EMPTY_S = 2.0
"""A stream that delivers nothing for so long has nothing from there on, or is silent."""

SILENCE_S = 10.0
"""So long nothing comes from a stream before it is given up: after a restart a stream was seen that
never confirmed and never delivered, with no error."""

PREFETCH_MAX = 2_000


def at(offset: int) -> tuple[str, object]:
    """Return where a read begins: at an offset, or at the oldest entry if that is gone."""
    return ("l", max(offset, 0))


def since(time_s: int) -> tuple[str, object]:
    """Return where a read begins: what was published since a time (UTC s), or a little before."""
    return ("T", max(time_s, 0))


class Entry(NamedTuple):
    """One entry of a stream.

    Attributes:
        offset: where it stands; offsets rise, and some are missing.
        properties: the entry's.
        body: likewise.
    """

    offset: int
    properties: Properties
    body: bytes


Take = Callable[[Entry], bool]
"""Takes one entry; says whether it was the last that is wanted."""


class _Reading:
    """One consumer: what came, and whether it was enough."""

    def __init__(self, channel: Channel, prefetch: int, take: Take) -> None:
        self._channel = channel
        self._prefetch = prefetch
        self._take = take
        self._came = asyncio.Event()
        self._seen = 0
        self._last_tag = 0
        self._error: Exception | None = None
        self.count = 0
        self.is_enough = False

    async def begin(self, stream: str, start: tuple[str, object]) -> None:
        """Consume, in one packet: a peek is made of such reads."""
        arguments: Table = {OFFSET: start}
        consumers = self._channel.consumers
        await asyncio.gather(
            consumers.qos(self._prefetch),
            consumers.consume(stream, self._on_delivery, arguments=arguments),
        )

    def _on_delivery(self, delivery: Delivery) -> None:
        self.count += 1
        self._last_tag = delivery.tag
        self._came.set()
        if self.is_enough:
            return
        try:
            entry = _read_entry(delivery)
            self.is_enough = entry is not None and self._take(entry)
        except Exception as error:
            self._error, self.is_enough = error, True

    async def comes(self, within_s: float) -> bool:
        """Whether something has come since the last look; raises what has ended the channel."""
        events = self._came, self._channel.closed
        waiting = [asyncio.ensure_future(each.wait()) for each in events]
        try:
            await asyncio.wait(waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        if self._channel.close_reason is not None and not self._came.is_set():
            raise self._channel.close_reason.again()
        return self._came.is_set()

    async def go_on(self) -> None:
        """Read what is there; raises what went wrong at taking it."""
        self._came.clear()
        while not self.is_enough and self._seen != self.count:
            self._seen = self.count
            self._channel.consumers.ack(self._last_tag, multiple=True)
            await self._channel.consumers.qos(self._prefetch)
        if self._error is not None:
            raise self._error


async def read_stream(
    connection: HasChannels,
    stream: str,
    start: tuple[str, object],
    take: Take,
    *,
    prefetch: int = 250,
    may_be_empty: bool = False,
) -> int:
    """Hand over a stream's entries, oldest first, until it ends or `take` says that it is enough.

    Returns how many RabbitMQ has delivered.

    Args:
        start: `FIRST`, `LAST` or `at` an offset.
        prefetch: how many RabbitMQ delivers at a time.
        may_be_empty: whether there may be no entry from `start` on.

    Raises:
        NotFound: there is no such stream.
        BrokerSilent: an entry that must be there does not come.
        BrokerError: the channel ended.
    """
    # Nothing is to be settled, so nothing is to be waited for at the end.
    with await connection.channel() as channel:
        reading = _Reading(channel, prefetch, take)
        await reading.begin(stream, start)
        if not await reading.comes(EMPTY_S) and not may_be_empty:
            raise _silent(stream)
        await reading.go_on()
    return reading.count


async def read_until(
    connection: HasChannels,
    stream: str,
    start: tuple[str, object],
    take: Take,
    *,
    prefetch: int = PREFETCH_MAX,
    publish: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Hand over a stream's entries, oldest first, until `take` says that it is enough.

    Args:
        publish: publishes the last that is wanted, and returns when it is confirmed; else it is
            there.

    Raises:
        BrokerError: the channel ended, or the stream says nothing.
    """
    with await connection.channel() as channel:
        reading = _Reading(channel, prefetch, take)
        await reading.begin(stream, start)
        if publish is not None:
            await publish()
        while not reading.is_enough:
            if not await reading.comes(SILENCE_S):
                raise _silent(stream)
            await reading.go_on()
        await reading.go_on()


async def read_range(
    connection: HasChannels, stream: str, start: int, end: int, take: Callable[[Entry], None]
) -> None:
    """Hand over the entries from `start` to `end`, both included, as far as they are there.

    Args:
        start: an offset.
        end: an offset that the stream has reached.
        take: called with each entry, oldest first.

    Raises:
        BrokerError: the channel ended, or the stream says nothing.
    """

    def pass_on(entry: Entry) -> bool:
        if start <= entry.offset <= end:
            take(entry)
        return entry.offset >= end

    if start <= end:
        prefetch = min(end - start + 1, PREFETCH_MAX)
        await read_until(connection, stream, at(start), pass_on, prefetch=prefetch)


async def find_own(
    connection: HasChannels,
    stream: str,
    publish: Callable[[], Awaitable[None]],
    is_own: Callable[[Entry], bool],
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

    await read_until(connection, stream, ("S", b"next"), take, publish=publish)
    return found[0]


def _read_entry(delivery: Delivery) -> Entry | None:
    """Return what a stream has delivered; `None` when it cannot be read: anybody may publish."""
    try:
        properties = Properties.decode(delivery.properties)
    except ValueError:
        return None
    offset = (properties.headers or {}).get(OFFSET, ("V", None))[1]
    return Entry(offset, properties, delivery.body) if isinstance(offset, int) else None


def _silent(stream: str) -> BrokerSilent:
    return BrokerSilent(text=f"the stream {stream!r} says nothing")
