"""The channels that one queue is received on: RabbitMQ has faults with several consumers on one.

docs/rabbitmq-faults.md has both faults: consumed-twice (4.3), returns-order (before 4.3).

**Since 4.3, in a cluster.** A channel that consumes twice may lose all its messages.
When a channel's node dies, the leader of a quorum queue is told that the channel is gone, and again
for each consume (or get) of this channel that was still on its way. After the second time RabbitMQ
4.3.6 no longer knows the channel's consumers as disconnected: they keep their messages until the
queue has another leader (`update_consumer_status` in `rabbit_fifo`). A channel whose only consume
is on its way is not watched yet, so the leader is told of it once.

**Before 4.3, on one node.** When a channel ends, a quorum queue returns its consumers' messages
(each unsettled get is a consumer) in the order of an Erlang map. Above 32 keys that order differs
when the queue reads its log again after a restart. From then on acks hit other messages: settled
messages come again, and others are lost. With pika alone, 60 gets of one channel, closed, consumed
again, 30 acked, RabbitMQ killed: of the 30 others some were lost each time (4.0.5). With 60
channels of one get each: none (3 of 3). Such a channel is used again: it has one consumer at a
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.pool import Route
from bridge.broker.errors import BrokerError, NotFound

REOPEN_S = 0.5
"""The time between two attempts to open a channel."""

RETIRE_S = 1.0
"""The time that a channel stays open after its last settlement: a queue that elects a leader loses
the acks that it has not applied when their channel ends."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """The limits of a queue's channels.

    Attributes:
        own_max: the most channels of one consumer each; more consumers share the main channel.
        idle_max: the most such channels that are kept, all their messages settled, for reuse.
    """

    own_max: int
    idle_max: int


SHARED = ChannelLimits(own_max=0, idle_max=0)
"""All consumers on the main channel: since 4.3 on one node; before 4.3 in a cluster, with few."""

REUSED = ChannelLimits(own_max=500, idle_max=16)
"""Before 4.3 on one node. Each channel takes memory in RabbitMQ; some 120 were seen."""

SPENT = ChannelLimits(own_max=500, idle_max=0)
"""Since 4.3 in a cluster."""


class ChannelPool:
    """The channels of one queue; when one of them ends, all are ended.

    Args:
        resource: the queue's name.
        route: opens channels.
        supervisor: repeats the opening of the main channel.
        on_lost: called with the ended channels: RabbitMQ has taken back all their messages.
        on_ready: called when messages may be fetched again.

    Attributes:
        main: the channel for declares, and for consumers without a channel of their own; `None`
            while there is no connection.
    """

    def __init__(
        self,
        resource: str,
        route: Route,
        limits: ChannelLimits,
        *,
        supervisor: Supervisor,
        on_lost: Callable[[list[Channel]], None],
        on_ready: Callable[[], None],
    ) -> None:
        self.main: Channel | None = None
        self._resource = resource
        self._route = route
        self._limits = limits
        self._supervisor = supervisor
        self._on_lost = on_lost
        self._on_ready = on_ready
        self._own: dict[Channel, None] = {}
        self._idle: list[Channel] = []
        self._returning = 0
        self._opening: asyncio.Task[None] | None = None
        self._is_closing = False

    def __repr__(self) -> str:
        return f"ChannelPool({self._resource!r}, {self.main!r}, {len(self._own)} of one consumer)"

    @property
    def can_fetch(self) -> bool:
        """Whether a consumer may begin: connected, and no message is on its way back."""
        return self.main is not None and not self._returning

    @property
    def has_own(self) -> bool:
        """Whether consumers have channels of their own now."""
        return bool(self._own)

    def open_soon(self, wait_s: float = 0) -> None:
        """Open the main channel after `wait_s`, unless it is open or opening."""
        if self.main is None and self._opening is None and not self._is_closing:
            self._opening = self._supervisor.repeat(
                "receiving channel",
                partial(self._open, wait_s),
                subject=self._resource,
                pause_min_s=REOPEN_S,
                pause_max_s=REOPEN_S,
                on_failed=self._note_unopened,
            ).task

    def take(self) -> Channel:
        """Return the channel of the next consumer."""
        assert self.main is not None
        if self._idle:
            channel = self._idle.pop()
            del self._own[channel]
            self._own[channel] = None
            return channel
        if len(self._own) >= self._limits.own_max:
            return self.main
        try:
            channel = self._route.channel_soon()
        except BrokerError:
            return self.main
        channel.on_closed = self._on_closed
        self._own[channel] = None
        return channel

    def retire(self, channel: Channel) -> None:
        """Free a channel without a consumer, once all its messages are settled."""
        if channel not in self._own:
            return
        if channel.consumers.outstanding:
            channel.consumers.on_settled = partial(self._free, channel)
        else:
            self._free(channel)

    def returned(self, channel: Channel) -> None:
        """Note a return on a channel.

        With channels of one consumer each, `can_fetch` is false until RabbitMQ has handled the
        return: newer messages on another channel would overtake the message.
        """
        if self._own:
            self._returning += 1
            channel.barrier().add_done_callback(self._on_returned)

    def give_up(self) -> None:
        """End all channels and open a new one: the queue was deleted and made again."""
        if self.main is not None:
            self._on_closed(NotFound(text="the queue was made anew"))

    async def close(self) -> None:
        """Close all channels: RabbitMQ takes back their unacked messages.

        Channels of one consumer end one after another, as they were taken: RabbitMQ gives messages
        out again in the order in which it took them back, whatever their place was before.
        """
        self._is_closing = True
        if self._opening is not None:
            self._opening.cancel()
        own = list(self._own)
        for channel in own:
            channel.on_closed = channel.consumers.on_settled = None
        empty = [each.close() for each in own if not each.consumers.outstanding]
        await asyncio.gather(*empty, return_exceptions=True)
        for channel in own:
            if channel.close_reason is None:
                with contextlib.suppress(BrokerError):
                    await channel.close()
        if self.main is not None:
            await self.main.close()

    async def _open(self, wait_s: float) -> None:
        if self.main is not None:
            return
        await asyncio.sleep(wait_s)
        channel = await self._route.channel()
        if channel.close_reason is not None:
            raise channel.close_reason.again()
        channel.on_closed = self._on_closed
        self.main = channel
        self._opening = None
        self._on_ready()

    def _note_unopened(self, error: BaseException, failures: int, wait_s: float) -> None:
        log.info("reader.unopened entity=%s error=%s", self._resource, error)

    def _on_closed(self, error: BrokerError) -> None:
        """End all channels after one has ended, and open a main channel again."""
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
        self._own.pop(channel, None)
        asyncio.get_running_loop().call_later(RETIRE_S, channel.abandon)
