"""The messages that a queue has ready when a receiver takes its credit back: they come first.

RabbitMQ's count of ready messages tells whether there are any. It is asked on the extra connection:
a queue that does not answer costs no lock.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from bridge.broker.connection.receiving_channel import ReceivingChannel
from bridge.broker.errors import BrokerError
from bridge.broker.ready_counts import queue_state
from bridge.engine.receiving.channel_pool import ChannelPool
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.machine.credit.strategy import Strategy
from bridge.message.fetches import Fetches

BRING_S = 1.0
"""The longest wait for ready messages."""

READY_S = 0.05
"""The time between two counts, when messages that were ready do not come: others take them."""


class ReadyMessages:
    """The ready messages of one queue.

    Attributes:
        changed: set after each change of the queue's fetches and messages here.
    """

    def __init__(
        self,
        resource: str,
        connections: ConsumerConnections,
        channels: ChannelPool,
        fetches: Fetches[ReceivingChannel],
        credit: Strategy[Any],
    ) -> None:
        self.changed = asyncio.Event()
        self._resource = resource
        self._connections = connections
        self._channels = channels
        self._fetches = fetches
        self._credit = credit

    async def bring(self, receiver: int) -> None:
        """Return when the queue has none for a receiver's credit, or after `BRING_S`."""
        with contextlib.suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(BRING_S):
                while self._credit.balance.waiters.of(receiver):
                    self.changed.clear()
                    if self._fetches.getting or not self._channels.can_fetch:
                        await self.changed.wait()
                    elif await self._is_empty():
                        return

    async def _is_empty(self) -> bool:
        """Return whether the queue has no ready message; if it has, wait a moment for it."""
        await self._arrived()  # all windows have begun then
        with await self._connections.channel() as channel:
            ready = (await queue_state(channel, self._resource)).messages
        if not ready:
            await self._arrived()
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                await self.changed.wait()
        return False

    async def _arrived(self) -> None:
        """Return when the messages that RabbitMQ has sent to windows so far have come.

        Raises:
            BrokerError: a channel has ended.
        """
        channels = {each.channel for each in self._fetches.windows.values() if not each.is_closed}
        await asyncio.gather(*(each.barrier() for each in channels))
