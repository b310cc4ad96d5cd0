"""Channels that stay open for the next short exchange.

RabbitMQ's channel keeps what it knows of a stream: the next read of the stream asks no other
process of RabbitMQ for its members.
"""

from __future__ import annotations

import asyncio
from functools import partial

from bridge.broker.connection.address import HasChannels
from bridge.broker.connection.channel import Channel

KEPT_S = 5.0
"""Time after the last exchange after which the channels are closed."""

KEPT_MAX = 8

LIFE_S = 60.0
"""Age from which a channel is closed after its exchange, however often it is used: RabbitMQ's
channel keeps something for each stream that was read on it."""


class KeptChannels:
    """Opens channels for exchanges; a channel whose exchange ended in order serves the next one.

    Args:
        connection: opens the channels.
    """

    def __init__(self, connection: HasChannels) -> None:
        self._connection = connection
        self._kept: list[Channel] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of open channels that no exchange uses."""
        return sum(each.close_reason is None for each in self._kept)

    async def channel(self) -> Channel:
        """Return a channel for one exchange, whose end is that of the channel's `with` block.

        By then it has no consumer, and no question that is not answered.
        """
        while self._kept:
            channel = self._kept.pop()
            if channel.close_reason is None:
                return channel
        channel = await self._connection.channel()
        channel.keeper = partial(self._keep, asyncio.get_running_loop().time() + LIFE_S)
        return channel

    def close(self) -> None:
        """Close the channels that no exchange uses."""
        while self._kept:
            self._kept.pop().abandon()

    def _keep(self, until_s: float, channel: Channel) -> None:
        loop = asyncio.get_running_loop()
        if len(self._kept) >= KEPT_MAX or loop.time() >= until_s:
            channel.abandon()
            return
        # What came for an ended consumer: RabbitMQ's channel would keep it.
        channel.consumers.ack_all()
        self._kept.append(channel)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(KEPT_S, self.close)
