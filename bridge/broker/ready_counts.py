"""Queues' counts of ready messages and consumers, from the answer to a passive declaration.

When a queue does not answer RabbitMQ within 250 ms, RabbitMQ reports no messages and no consumers
(docs/rabbitmq-faults.md: empty-when-dead). Such an answer takes 250 ms or more: zero counts that
took so long are not believed, and the bridge asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container

from bridge.broker.connection.address import HasChannels
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.declarations import QueueState
from bridge.broker.errors import BrokerSilent, NotFound

WAITS_S = 0.25
"""How long RabbitMQ waits for a queue's counts before it answers with zeros."""

ASKS = 4
"""Number of doubtful answers after which a queue counts as silent."""


async def queue_state(channel: Channel, queue: str) -> QueueState:
    """Return the counts that a queue itself reports.

    Raises:
        NotFound: the queue does not exist; the channel is closed.
        BrokerSilent: the queue does not answer, in `ASKS` attempts.
    """
    clock = asyncio.get_running_loop().time
    for _ in range(ASKS):
        asked_s = clock()
        state = await channel.declarations.declare_queue(queue, passive=True)
        if state.messages or state.consumers or clock() - asked_s < WAITS_S:
            return state
    raise BrokerSilent(text=f"the queue {queue!r} does not say what is in it")


class ReadyCounts:
    """Counts of the messages that queues could deliver now, over one channel opened on demand.

    Args:
        there: the queues that exist, where that is known; the others count 0 without a request.
    """

    def __init__(self, connection: HasChannels, there: Container[str] | None = None) -> None:
        self._connection = connection
        self._there = there
        self._channel: Channel | None = None

    async def of(self, queue: str) -> int:
        """Return the number of ready messages of a queue; 0 when the queue does not exist.

        Raises:
            BrokerSilent: the queue does not answer.
            BrokerError: the channel was lost.
        """
        if self._there is not None and queue not in self._there:
            return 0
        if self._channel is None:
            self._channel = await self._connection.channel()
        try:
            return (await queue_state(self._channel, queue)).messages
        except NotFound:
            self._channel = None  # NotFound has closed it
            return 0

    def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.abandon()
