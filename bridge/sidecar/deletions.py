"""Deleting queues of one entity in the background.

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
from bridge.broker.connection.pool import ConnectionLease
from bridge.topology import names

Start = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class Deletions:
    """The deletions that are under way, each on a channel of its own.

    Args:
        connection: opens the channels.
        start: starts a deletion as a task, and handles its failure.
    """

    def __init__(self, connection: ConnectionLease, start: Start) -> None:
        self._connection = connection
        self._start = start
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._owner = os.urandom(8)

    def __contains__(self, queue: str) -> bool:
        return queue in self._tasks

    def begin(self, queue: str, then: Callable[[], Awaitable[None]] | None = None) -> None:
        """Begin to delete a queue, fenced against a kill of RabbitMQ; afterwards call `then`."""
        self._tasks[queue] = self._start(self._delete(queue, then))

    async def wait(self, queue: str) -> None:
        """Wait until the deletion of a queue has ended, if one is under way.

        Raises:
            BrokerError: the deletion failed; RabbitMQ may delete the queue later.
        """
        if task := self._tasks.get(queue):
            await asyncio.shield(task)

    async def fence(self, channel: Channel) -> None:
        """Have all declarations on a channel outlast a kill of RabbitMQ."""
        # RabbitMQ never forgets a queue's name, so the fence takes the first name that is free.
        owners = (self._owner + bytes([each]) for each in itertools.count())
        owner = next(each for each in owners if names.declaration_fence(each) not in self)
        await channel.declarations.declare_queue(declaration_fence.queue(owner))
        await declaration_fence.fence_deletions(channel)
        self.begin(names.declaration_fence(owner))

    async def close(self) -> None:
        """Cancel the waits; RabbitMQ completes the deletions that it has received."""
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
