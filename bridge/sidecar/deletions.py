"""The queues of one entity that are deleted beside everything else.

In a cluster with a dead node a deletion takes 5 s, and holds up its channel
(docs/rabbitmq-faults.md: slow-delete).
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Coroutine

from bridge.broker import declaration_fence
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.pool import Lease
from bridge.topology import names

Start = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class Deletions:
    """Deletions that are under way, each on a channel of its own.

    Args:
        connection: where the channels are opened.
        start: starts one, and heeds its failure.
    """

    def __init__(self, connection: Lease, start: Start) -> None:
        self._connection = connection
        self._start = start
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._owner = os.urandom(8)

    def __contains__(self, queue: str) -> bool:
        return queue in self._tasks

    def begin(self, queue: str, then: Callable[[], Awaitable[None]] | None = None) -> None:
        """Delete a queue, so that it outlasts a kill of RabbitMQ; then do what comes then."""
        self._tasks[queue] = self._start(self._delete(queue, then))

    async def wait(self, queue: str) -> None:
        """Wait until a queue is not being deleted.

        Raises:
            BrokerError: it may be deleted later: that failed.
        """
        if task := self._tasks.get(queue):
            await asyncio.shield(task)

    async def fence(self, channel: Channel) -> None:
        """Have all that was declared on a channel outlast a kill of RabbitMQ."""
        # RabbitMQ never forgets a queue's name, so the first that is free is used again.
        owners = (self._owner + bytes([each]) for each in itertools.count())
        owner = next(each for each in owners if names.declaration_fence(each) not in self)
        await channel.declarations.declare_queue(declaration_fence.queue(owner))
        await declaration_fence.fence_deletions(channel)
        self.begin(names.declaration_fence(owner))

    async def close(self) -> None:
        """Wait for none any more; RabbitMQ goes on with those that it knows of."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _delete(self, queue: str, then: Callable[[], Awaitable[None]] | None) -> None:
        with await self._connection.channel() as channel:
            await declaration_fence.delete(channel, queue)
        if then is not None:
            await then()
        del self._tasks[queue]
