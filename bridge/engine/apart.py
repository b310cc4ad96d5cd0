"""Channels of one window each: in a cluster since 4.3 a channel that consumes twice may lose all.

When a channel's node dies, the leader of a quorum queue hears that it is gone, and once more for
each consume (or get) of this channel that was still on its way. After the second time RabbitMQ
4.3.6 does not know the channel's consumers as disconnected any more: what they hold stays with them
until the queue has another leader (`update_consumer_status` in `rabbit_fifo`). The leader does not
watch a channel yet whose only consume is on its way, so it hears of that one once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from bridge.broker.channel import Channel
from bridge.broker.errors import BrokerError
from bridge.engine.intake import Intake

APART_MAX = 500
"""Channels that one source may have: each takes memory of RabbitMQ's, and some 120 were seen."""

RETIRE_S = 1.0
"""How long a channel stays when all that came on it is settled: a queue that elects a leader loses
the acks that it has not applied when their channel ends."""


class Apart:
    """The channels of one source that have a window of their own.

    Args:
        on_lost: called when one has ended that was not told to.
    """

    def __init__(self, intake: Intake, on_lost: Callable[[], None]) -> None:
        self._intake = intake
        self._on_lost = on_lost
        self._channels: set[Channel] = set()
        self._retiring: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"Apart({len(self._channels)} channels)"

    def channel(self) -> Channel | None:
        """Open a channel; `None` when there are too many."""
        if len(self._channels) >= APART_MAX:
            return None
        try:
            channel = self._intake.channel_soon()
        except BrokerError:
            return None
        channel.on_closed = lambda error: self._on_lost()
        self._channels.add(channel)
        return channel

    def retire(self, channel: Channel) -> None:
        """A channel's window is closed: close it too, when all that came on it is settled."""
        if channel not in self._channels:
            return
        if channel.outstanding:
            channel.on_settled = partial(self._end_soon, channel)
        else:
            self._end_soon(channel)

    def lose(self) -> list[Channel]:
        """End all at once; return those that had something to lose."""
        lost = list(self._channels)
        self._channels.clear()
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
    with contextlib.suppress(BrokerError):
        await channel.barrier()  # who waits to be sure of a settlement has had the answer then
        channel.abandon()
