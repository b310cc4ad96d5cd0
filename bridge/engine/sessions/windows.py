"""The channels that a session entity's messages are held on: many, with a small window each.

A channel looks for an acked message among all that it has unacked: with 50,000 of them it applies
550 acks a second where they come out of order, and with 2,000 some thousands (3.10 and 4.3).

One channel at a time has a consumer: what comes on two of them comes in no order. When its window
is full, the consumer is cancelled, and when RabbitMQ has said so the next channel has one. In
clusters since 4.3 that is a new one each time (docs/rabbitmq-faults.md: consumed-twice).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.pool import Route
from bridge.broker.errors import BrokerError, ConnectionLost

WINDOW = 2_000
WINDOWS_MAX = 500
"""So many channels of the 2,047 of a connection; what is beyond waits in RabbitMQ."""

SPENT_S = 1.0
"""A channel that is not to consume again ends so long after its last message was settled."""

ROOM_S = 0.1
"""So often it is looked for a channel that has room, when none had."""


class Windows:
    """A consumer of one queue that may hold more than one channel's window.

    Args:
        consumes_once: no channel consumes twice, unless there are `WINDOWS_MAX` of them.
        on_delivery: called for each message, in the order in which the queue gives them.
        on_lost: called once when one of the channels has ended, or its consumer.
    """

    def __init__(
        self,
        resource: str,
        route: Route,
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
        self._channels: list[Channel] = []
        self._current: Channel | None = None
        self._tag = ""
        self._tags = itertools.count(1)
        self._moving: asyncio.Task[None] | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return f"Windows({self._resource!r}, {len(self._channels)} channels)"

    @property
    def is_full(self) -> bool:
        """Whether no more messages can be held."""
        return len(self._channels) >= WINDOWS_MAX and all(
            each.consumers.outstanding >= WINDOW for each in self._channels
        )

    @property
    def consumers(self) -> int:
        """How many consumers RabbitMQ may count: cancelled ones that hold messages are counted."""
        current = self._current
        return sum(each is current or bool(each.consumers.outstanding) for each in self._channels)

    async def catch_up(self) -> None:
        """Return when all that RabbitMQ has given out so far has come, however long it takes.

        A channel answers behind what it has delivered.

        Raises:
            BrokerError: a channel has ended.
        """
        while self._moving is not None and not self.is_full:
            await asyncio.wait((self._moving,), timeout=ROOM_S)
        if self._current is not None:
            await self._current.consumers.qos(WINDOW)

    def holds(self, channel: Channel) -> bool:
        """Whether this is a channel of these that is open."""
        return not self._is_over and channel.close_reason is None

    def close(self) -> None:
        """Let go of all messages."""
        for channel in self._end():
            channel.abandon()

    async def closed(self) -> None:
        """Let go of all messages when RabbitMQ has applied what was acked."""
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
        self._on_delivery(delivery)
        if self._moving is None and self._is_current_full and not self._is_over:
            self._moving = asyncio.get_running_loop().create_task(self._move())

    async def _move(self) -> None:
        """Have another channel consume, as long as the one that does is full."""
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
        finally:
            self._moving = None

    async def begin(self) -> None:
        """Have the emptiest channel consume, or a new one while all are half full.

        Raises:
            BrokerError: RabbitMQ does not let it.
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
        """End the channels that hold nothing any more, when RabbitMQ has read their last acks."""
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
