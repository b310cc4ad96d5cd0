"""Reading a stream up to its present end.

RabbitMQ does not say where a stream ends. But the process of a channel hands out all that a
consumer's credit allows before it turns to the channel's next request: so what has not come when
that is answered is not there (3.10, 4.0 and 4.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.connection.address import HasChannels
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerSilent
from bridge.broker.streams.journal_reader import OFFSET, Entry, is_done, read_entry
from bridge.wire.basic import Table

FIRST: tuple[str, object] = ("S", b"first")
LAST: tuple[str, object] = ("S", b"last")
"""The last chunk: some of the last entries."""

EMPTY_S = 2.0
"""A stream that delivers nothing for so long has nothing from there on, or is silent."""


def at(offset: int) -> tuple[str, object]:
    """Return where a read begins: at an offset, or at the oldest entry if that is gone."""
    return ("l", max(offset, 0))


class _Reading:
    """One consumer: what came, and whether it was enough."""

    def __init__(self, take: Callable[[Entry], bool]) -> None:
        self._take = take
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.count = 0
        self.last_tag = 0
        self.is_enough = False
        self.error: Exception | None = None

    def on_delivery(self, delivery: Delivery) -> None:
        self.count += 1
        self.last_tag = delivery.tag
        if not self.begun.done():
            self.begun.set_result(None)
        if self.is_enough:
            return
        try:
            entry = read_entry(delivery)
            self.is_enough = entry is not None and self._take(entry)
        except Exception as error:
            self.error, self.is_enough = error, True


async def read_stream(
    connection: HasChannels,
    stream: str,
    start: tuple[str, object],
    take: Callable[[Entry], bool],
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
    reading = _Reading(take)
    # Nothing is to be settled, so nothing is to be waited for at the end.
    with await connection.channel() as channel:
        arguments: Table = {OFFSET: start}
        consumers = channel.consumers
        await asyncio.gather(  # in one packet: a peek is made of such reads
            consumers.qos(prefetch),
            consumers.consume(stream, reading.on_delivery, arguments=arguments),
        )
        if await is_done(channel, reading.begun, EMPTY_S):
            await _go_on(channel, reading, prefetch)
        elif not may_be_empty:
            raise BrokerSilent(text=f"the stream {stream!r} says nothing")
    if reading.error is not None:
        raise reading.error
    return reading.count


async def _go_on(channel: Channel, reading: _Reading, prefetch: int) -> None:
    seen = 0
    while not reading.is_enough and seen != reading.count:
        seen = reading.count
        channel.consumers.ack(reading.last_tag, multiple=True)
        await channel.consumers.qos(prefetch)
