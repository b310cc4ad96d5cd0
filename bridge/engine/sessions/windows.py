"""The channels that a session entity's messages are held on: many, with a small window each.

A channel looks for an acked message among all that it has unacked: with 50,000 of them it applies
550 acks a second where they come out of order, and with 2,000 some thousands (3.10 and 4.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from bridge.broker.channel import Channel
from bridge.broker.delivery import Delivery
from bridge.broker.errors import BrokerError, ConnectionLost
from bridge.broker.pool import Route

WINDOW = 2_000
WINDOWS_MAX = 500
"""So many channels of the 2,047 of a connection; what is beyond waits in RabbitMQ."""


class Windows:
    """Consumers of one queue, each on a channel of its own; there are more when they are full.

    Args:
        on_delivery: called for each message.
        on_lost: called once when one of the channels has ended, or its consumer.
    """

    def __init__(
        self,
        resource: str,
        route: Route,
        *,
        on_delivery: Callable[[Delivery], None],
        on_lost: Callable[[BrokerError], None],
    ) -> None:
        self._resource = resource
        self._route = route
        self._on_delivery = on_delivery
        self._on_lost = on_lost
        self._channels: set[Channel] = set()
        self._is_over = False

    def __repr__(self) -> str:
        return f"Windows({self._resource!r}, {len(self._channels)} channels)"

    def __len__(self) -> int:
        """Return how many consumers there are."""
        return len(self._channels)

    @property
    def is_full(self) -> bool:
        """Whether there can be no more."""
        return len(self._channels) >= WINDOWS_MAX

    def fit(self, held: int) -> None:
        """Have room for more than what is held.

        Raises:
            BrokerError: there is no connection.
        """
        while held + WINDOW // 2 > len(self._channels) * WINDOW and not self.is_full:
            try:
                self._open()
            except BrokerError:
                if not self._channels:
                    raise
                return  # the connection has all the channels that it may have

    def holds(self, channel: Channel) -> bool:
        """Whether this is a channel of these that is open."""
        return channel in self._channels and channel.close_reason is None

    def close(self) -> None:
        """Let go of all messages."""
        self._is_over = True
        for channel in self._channels:
            channel.on_closed = None
            if channel.close_reason is None:
                channel.abandon()
        self._channels.clear()

    async def closed(self) -> None:
        """Let go of all messages when RabbitMQ has applied what was acked."""
        self._is_over = True
        for channel in self._channels:
            channel.on_closed = None
        await asyncio.gather(*(each.close() for each in self._channels), return_exceptions=True)
        self._channels.clear()

    def _open(self) -> None:
        channel = self._route.channel_soon()
        channel.on_closed = self._lost
        self._channels.add(channel)
        begun = channel.consume_soon(
            self._resource,
            self._on_delivery,
            tag=f"session-window-{len(self._channels)}",
            prefetch=WINDOW,
            on_cancel=partial(self._cancelled, channel),
        )
        begun.add_done_callback(_look_at)

    def _cancelled(self, channel: Channel, tag: str) -> None:
        self._lost(ConnectionLost(text="the consumer was cancelled"))

    def _lost(self, error: BrokerError) -> None:
        if not self._is_over:
            self.close()
            self._on_lost(error)


def _look_at(begun: asyncio.Future[object]) -> None:
    if not begun.cancelled():
        begun.exception()  # the channel ends with it, and says so
