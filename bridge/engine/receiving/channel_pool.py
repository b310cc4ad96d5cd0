"""The channels that one queue is received on; RabbitMQ has faults with several consumers on one.

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
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.pool import Route
from bridge.broker.errors import BrokerError, NotFound
from bridge.broker.retry import retry

REOPEN_S = 0.5
"""Between two attempts to have a channel, when RabbitMQ closes it again and again."""

RETIRE_S = 1.0
"""How long a channel stays when all that came on it is settled: a queue that elects a leader loses
the acks that it has not applied when their channel ends."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """How many channels a queue has.

    Attributes:
        own_max: channels of one consumer each; above that, all are on the main channel.
        idle_max: so many of them are kept for the next consumer when all is settled that came.
    """

    own_max: int
    idle_max: int


SHARED = ChannelLimits(own_max=0, idle_max=0)
"""All on the main channel: since 4.3 on one node; before, in a cluster, where they are few."""

REUSED = ChannelLimits(own_max=500, idle_max=16)
"""Before 4.3 on one node. Each takes memory of RabbitMQ's, and some 120 were seen."""

SPENT = ChannelLimits(own_max=500, idle_max=0)
"""Since 4.3 in a cluster."""


class ChannelPool:
    """The channels of one queue. All are there, or none is: what one has lost, all have.

    Args:
        resource: the queue.
        route: where a channel is had.
        on_lost: called with them when all that came on them is lost.
        on_ready: called when something can be fetched again.

    Attributes:
        main: what asks the queue, and what consumers without a channel of their own are on; `None`
            while there is no connection.
    """

    def __init__(
        self,
        resource: str,
        route: Route,
        limits: ChannelLimits,
        *,
        on_lost: Callable[[list[Channel]], None],
        on_ready: Callable[[], None],
    ) -> None:
        self.main: Channel | None = None
        self._resource = resource
        self._route = route
        self._limits = limits
        self._on_lost = on_lost
        self._on_ready = on_ready
        self._own: set[Channel] = set()
        self._idle: list[Channel] = []
        self._returning = 0
        self._opening: asyncio.Task[None] | None = None
        self._is_closing = False

    def __repr__(self) -> str:
        return f"ChannelPool({self._resource!r}, {self.main!r}, {len(self._own)} of one consumer)"

    @property
    def can_fetch(self) -> bool:
        """Whether a consumer may begin."""
        return self.main is not None and not self._returning

    @property
    def has_own(self) -> bool:
        """Whether consumers have channels of their own now."""
        return bool(self._own)

    def open_soon(self, wait_s: float = 0) -> None:
        """Open the main channel, unless it is open."""
        if self.main is None and self._opening is None and not self._is_closing:
            loop = asyncio.get_running_loop()
            self._opening = loop.create_task(self._open(wait_s))

    def take(self) -> Channel:
        """Return the channel of the next consumer."""
        assert self.main is not None
        if self._idle:
            return self._idle.pop()
        if len(self._own) >= self._limits.own_max:
            return self.main
        try:
            channel = self._route.channel_soon()
        except BrokerError:
            return self.main
        channel.on_closed = self._on_closed
        self._own.add(channel)
        return channel

    def retire(self, channel: Channel) -> None:
        """A channel brings nothing more: it is free when all that came on it is settled."""
        if channel not in self._own:
            return
        if channel.consumers.outstanding:
            channel.consumers.on_settled = partial(self._free, channel)
        else:
            self._free(channel)

    def returned(self, channel: Channel) -> None:
        """A message goes back on this channel: on another one nothing may come before it."""
        if self._own:
            self._returning += 1
            channel.barrier().add_done_callback(self._on_returned)

    def give_up(self) -> None:
        """The queue was deleted and made anew: what came on them is lost, and others are opened."""
        if self.main is not None:
            self._on_closed(NotFound(text="the queue was made anew"))

    async def close(self) -> None:
        """Close the channels; what came on them goes back to its queue."""
        self._is_closing = True
        if self._opening is not None:
            self._opening.cancel()
        for channel in self._own:
            channel.on_closed = channel.consumers.on_settled = None
        closing = [channel.close() for channel in self._own]
        await asyncio.gather(*closing, return_exceptions=True)
        if self.main is not None:
            await self.main.close()

    async def _open(self, wait_s: float) -> None:
        try:
            await asyncio.sleep(wait_s)
            channel = await retry(
                self._route.channel,
                wait_s=REOPEN_S,
                retryable=BrokerError,
                on_failed=self._note_unopened,
            )
            if channel.close_reason is None:
                channel.on_closed = self._on_closed
                self.main = channel
        finally:
            self._opening = None
        self._on_ready()

    def _note_unopened(self, error: BaseException, failures: int, wait_s: float) -> None:
        log.info("reader.unopened entity=%s error=%s", self._resource, error)

    def _on_closed(self, error: BrokerError) -> None:
        """RabbitMQ has taken back what one of them held: give the others up, too."""
        lost = [*self._own] if self.main is None else [self.main, *self._own]
        self.main = None
        self._own.clear()
        self._idle.clear()
        for channel in lost:
            channel.on_closed = channel.consumers.on_settled = None
            channel.abandon()
        self._on_lost(lost)
        if not self._is_closing:
            log.warning("reader.lost entity=%s error=%s", self._resource, error)
            self.open_soon(REOPEN_S)
        self._on_ready()

    def _on_returned(self, barrier: asyncio.Future[None]) -> None:
        self._returning -= 1
        self._on_ready()

    def _free(self, channel: Channel) -> None:
        channel.consumers.on_settled = None
        if len(self._idle) < self._limits.idle_max:
            self._idle.append(channel)
            return
        channel.on_closed = None
        self._own.discard(channel)
        asyncio.get_running_loop().call_later(RETIRE_S, channel.abandon)
