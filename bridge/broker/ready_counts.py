"""What queues say of themselves when they are declared passively: messages and consumers.

Of a queue that does not answer it within 250 ms RabbitMQ says that it has no messages and no
consumers (docs/rabbitmq-faults.md: empty-when-dead). Such an answer took that long: the queue is
asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container

from bridge.broker.connection.address import HasChannels
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.declarations import QueueState
from bridge.broker.errors import BrokerSilent, NotFound

WAITS_S = 0.25
"""So long RabbitMQ waits for a queue."""

ASKS = 4
"""Then the queue is silent."""


async def queue_state(channel: Channel, queue: str) -> QueueState:
    """Return what a queue itself says.

    Raises:
        NotFound: it is not there; the channel is closed.
        BrokerSilent: it does not answer.
    """
    clock = asyncio.get_running_loop().time
    for _ in range(ASKS):
        asked_s = clock()
        state = await channel.declarations.declare_queue(queue, passive=True)
        if state.messages or state.consumers or clock() - asked_s < WAITS_S:
            return state
    raise BrokerSilent(text=f"the queue {queue!r} does not say what is in it")


class ReadyCounts:
    """Asks how many messages queues could deliver now, over a channel opened when first needed.

    Args:
        there: the queues that are there, where that is known; no others are asked.
    """

    def __init__(self, connection: HasChannels, there: Container[str] | None = None) -> None:
        self._connection = connection
        self._there = there
        self._channel: Channel | None = None

    async def of(self, queue: str) -> int:
        """Return the count of one queue; 0 when it is not there.

        Raises:
            BrokerSilent: it does not answer.
            BrokerError: the channel was lost.
        """
        if self._there is not None and queue not in self._there:
            return 0
        if self._channel is None:
            self._channel = await self._connection.channel()
        try:
            return (await queue_state(self._channel, queue)).messages
        except NotFound:
            self._channel = None  # RabbitMQ has closed it
            return 0

    def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.abandon()
