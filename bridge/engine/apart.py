"""Channels of one consumer each, where RabbitMQ has faults with those that have several.

docs/rabbitmq-faults.md has both: consumed-twice (4.3), returns-order (before).

**Since 4.3, in a cluster.** A channel that consumes twice may lose all.
When a channel's node dies, the leader of a quorum queue hears that it is gone, and once more for
each consume (or get) of this channel that was still on its way. After the second time RabbitMQ
4.3.6 does not know the channel's consumers as disconnected any more: what they hold stays with them
until the queue has another leader (`update_consumer_status` in `rabbit_fifo`). The leader does not
watch a channel yet whose only consume is on its way, so it hears of that one once.

**Before 4.3, on one node.** When a channel ends, a quorum queue gives back what its consumers held
(each unsettled get is one) in the order of an Erlang map. Above 32 keys that order is another one
when the queue reads its log again after a restart: from then on acks are other messages', so
settled ones come again and others are lost. With pika alone, 60 gets of one channel, closed,
consumed again, 30 acked, RabbitMQ killed: of the 30 others 13 were lost on 3.10.8 (each time some,
4.0.5 too). With 60 channels of one get each: none (3 of 3). Such a channel is used again: it has
one consumer at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from bridge.broker.channel import Channel
from bridge.broker.errors import BrokerError
from bridge.broker.pool import Route
from bridge.machine.channels import Channels

APART_MAX = 500
"""Channels that one source may have: each takes memory of RabbitMQ's, and some 120 were seen."""

REUSED_MAX = 16
"""So many are kept for the next consumer; more end when what came on them is settled."""

RETIRE_S = 1.0
"""How long a channel stays when all that came on it is settled: a queue that elects a leader loses
the acks that it has not applied when their channel ends."""


class Apart:
    """The channels of one source that have one consumer each.

    Args:
        channels: whether one whose consumer has gone, with all that it held, has another.
        on_lost: called when one has ended that was not told to.
    """

    def __init__(self, route: Route, channels: Channels, on_lost: Callable[[], None]) -> None:
        self._route = route
        self._is_reused = channels is Channels.REUSED
        self._busy: set[Channel] = set()
        self._on_lost = on_lost
        self._channels: set[Channel] = set()
        self._retiring: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"Apart({len(self._channels)} channels)"

    def channel(self) -> Channel | None:
        """Return a channel without a consumer; `None` when there are too many."""
        if self._is_reused:
            for channel in self._channels:
                if channel not in self._busy and not channel.outstanding:
                    self._busy.add(channel)
                    return channel
        if len(self._channels) >= APART_MAX:
            return None
        try:
            channel = self._route.channel_soon()
        except BrokerError:
            return None
        channel.on_closed = lambda error: self._on_lost()
        self._channels.add(channel)
        self._busy.add(channel)
        return channel

    def retire(self, channel: Channel) -> None:
        """A channel brings nothing more: close it too, when all that came on it is settled."""
        self._busy.discard(channel)
        if channel not in self._channels:
            return
        if self._is_reused and len(self._channels) <= REUSED_MAX:
            return
        if channel.outstanding:
            channel.on_settled = partial(self._end_soon, channel)
        else:
            self._end_soon(channel)

    def lose(self) -> list[Channel]:
        """End all at once; return those that had something to lose."""
        lost = list(self._channels)
        self._channels.clear()
        self._busy.clear()
        for channel in lost:
            channel.on_closed = None
            channel.abandon()
        return lost

    async def close(self) -> None:
        """Close all in order, and then have `lose` return them."""
        for channel in self._channels:
            channel.on_closed = None
        closing = (channel.close() for channel in self._channels)
        await asyncio.gather(*closing, return_exceptions=True)

    def _end_soon(self, channel: Channel) -> None:
        channel.on_settled = channel.on_closed = None
        self._channels.discard(channel)
        task = asyncio.get_running_loop().create_task(_end(channel))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)


async def _end(channel: Channel) -> None:
    await asyncio.sleep(RETIRE_S)
    channel.abandon()
