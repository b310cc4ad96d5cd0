"""The channels that hold a shard's messages unacked: many, with a small window each.

RabbitMQ searches an acked message among all unacked ones of its channel: with 50,000 of them it
applies 550 acks a second that come out of order, with 2,000 some thousands (4.3).

One channel at a time has a consumer: deliveries of two channels come in no order. When its window
is full, its consumer is cancelled. When RabbitMQ has confirmed that, the next channel consumes. In
clusters since 4.3 that is a new channel each time (docs/rabbitmq-faults.md: consumed-twice).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from bridge.background.tasks import Tasks
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.pool import ChannelRoute
from bridge.broker.errors import BrokerError, ConnectionLost

WINDOW = 2_000
WINDOWS_MAX = 500
"""The most channels, of a connection's 2,047; further messages wait in RabbitMQ."""

SPENT_S = 1.0
"""The time from finding a channel without unacked messages to its end, if it must not consume
again."""

ROOM_S = 0.1
"""The time between two looks for a channel with room, while all are full."""


class ShardChannels:
    """A consumer of one queue that holds more messages than one channel's window.

    Args:
        consumes_once: no channel consumes twice, unless there are `WINDOWS_MAX` of them.
        on_delivery: called with each delivery, in the queue's order.
        on_lost: called once, when one of the channels or its consumer has ended.
    """

    def __init__(
        self,
        resource: str,
        route: ChannelRoute,
        *,
        consumes_once: bool,
        on_delivery: Callable[[Delivery], None],
        on_lost: Callable[[BrokerError], None],
    ) -> None:
        self._resource = resource
        self._route = route
        self._on_delivery = on_delivery
        self._on_lost = on_lost
        self._consumes_once = consumes_once
        self._tasks = Tasks()
        self._channels: list[Channel] = []
        self._current: Channel | None = None
        self._tag = ""
        self._tags = itertools.count(1)
        self._moving: asyncio.Task[None] | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"ShardChannels({self._resource!r}, {len(self._channels)} channels)"

    @property
    def is_full(self) -> bool:
        """Whether all `WINDOWS_MAX` channels are full."""
        return len(self._channels) >= WINDOWS_MAX and all(
            each.consumers.outstanding >= WINDOW for each in self._channels
        )

    @property
    def consumers(self) -> int:
        """The consumers that RabbitMQ may count: cancelled ones with messages are counted, too."""
        current = self._current
        return sum(each is current or bool(each.consumers.outstanding) for each in self._channels)

    @property
    def linger_s(self) -> float:
        """How long RabbitMQ may yet need to apply what was settled on these channels."""
        return max((each.consumers.linger_s for each in self._channels), default=0.0)

    async def catch_up(self) -> None:
        """Wait for all messages that RabbitMQ has delivered so far, however long it takes.

        A channel answers behind its deliveries.

        Raises:
            BrokerError: a channel has ended.
        """
        while self._moving is not None and not self.is_full:
            await asyncio.wait((self._moving,), timeout=ROOM_S)
        if self._current is not None:
            await self._current.consumers.qos(WINDOW)

    def holds(self, channel: Channel) -> bool:
        """Return whether a channel is open, and these windows are not closed."""
        return not self._is_over and channel.close_reason is None

    def close(self) -> None:
        """Close all channels at once: RabbitMQ takes back the unacked messages."""
        for channel in self._end():
            channel.abandon()

    async def closed(self) -> None:
        """Close all channels after RabbitMQ has applied their acks."""
        await asyncio.gather(*(each.close() for each in self._end()), return_exceptions=True)

    def _end(self) -> list[Channel]:
        self._is_over = True
        if self._moving is not None:
            self._moving.cancel()
        channels, self._channels = self._channels, []
        for channel in channels:
            channel.on_closed = None
        return channels

    @property
    def _is_current_full(self) -> bool:
        return self._current is not None and self._current.consumers.outstanding >= WINDOW

    def _arrived(self, delivery: Delivery) -> None:
        if self._is_over:
            return  # RabbitMQ takes the message back
        self._on_delivery(delivery)
        if self._moving is None and self._is_current_full and not self._is_over:
            self._moving = self._tasks.start(self._move(), "session window")

    async def _move(self) -> None:
        """Let another channel consume while the current one is full."""
        try:
            while self._is_current_full:
                if self.is_full:
                    await asyncio.sleep(ROOM_S)
                    continue
                assert self._current is not None
                await self._current.consumers.cancel(self._tag)
                await self.begin()
        except BrokerError as error:
            self._lost(error)
        except Exception as error:
            self._lost(ConnectionLost(text=repr(error)))
            raise
        finally:
            self._moving = None

    async def begin(self) -> None:
        """Let the emptiest channel consume, or a new one when all are more than half full.

        With `consumes_once` it is always a new one, up to `WINDOWS_MAX`.

        Raises:
            BrokerError: RabbitMQ refuses the channel or the consumer.
        """
        if self._consumes_once:
            self._end_spent()
        channel = min(self._channels, key=lambda each: each.consumers.outstanding, default=None)
        if channel is None or (
            (self._consumes_once or channel.consumers.outstanding > WINDOW // 2)
            and len(self._channels) < WINDOWS_MAX
        ):
            channel = await self._route.channel()
            channel.on_closed = self._lost
            self._channels.append(channel)
            await channel.consumers.qos(WINDOW)
        self._current, self._tag = channel, f"session-{next(self._tags)}"
        await channel.consumers.consume(
            self._resource,
            self._arrived,
            tag=self._tag,
            on_cancel=partial(self._cancelled, channel),
        )

    def _end_spent(self) -> None:
        """End channels without unacked messages, once RabbitMQ has read their acks (`SPENT_S`)."""
        spent = [each for each in self._channels if not each.consumers.outstanding]
        for channel in spent:
            self._channels.remove(channel)
            channel.on_closed = None
            asyncio.get_running_loop().call_later(SPENT_S, channel.abandon)

    def _cancelled(self, channel: Channel, tag: str) -> None:
        self._lost(ConnectionLost(text="the consumer was cancelled"))

    def _lost(self, error: BrokerError) -> None:
        if not self._is_over:
            self.close()
            self._on_lost(error)
