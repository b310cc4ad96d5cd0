"""Finding subscriptions whose queues were deleted by hand, so that the queues are made again.

RabbitMQ confirms a topic's publish when all existing queues have the message, so a missing queue is
no error. A look asks no queue's process, and takes place only after new publishes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.connection.pool import Lease
from bridge.broker.errors import BrokerError, NotFound
from bridge.model.entity import Subscription, Topic
from bridge.sidecar.leader import Leader
from bridge.topology.shards import active_queues


class MissingQueues:
    """Looks for the queues of a topic's subscriptions during one term of its leader.

    Args:
        on_missing: called with the path of a subscription that lacks a queue.
    """

    def __init__(
        self, leader: Leader, connection: Lease, on_missing: Callable[[str], None]
    ) -> None:
        self._on_missing = on_missing
        self._leader = leader
        self._connection = connection
        self._entries = 0
        self._looking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Start a look, if the leader has published since the last look."""
        if not self._leader.is_ready or (self._looking is not None and not self._looking.done()):
            return
        entries = self._leader.sequencer.journal.entries
        if entries != self._entries:
            self._entries = entries
            self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Cancel a look: the term is over."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        queues = {queue: each for each in self._subscriptions() for queue in active_queues(each)}
        try:
            with self._connection.channel_soon() as channel:
                await channel.barrier(queues)
        except NotFound as error:
            self._entries = -1  # look again: other queues may be missing, too
            named = [each.path for queue, each in queues.items() if f"'{queue}'" in error.text]
            # Read anew: a subscription may have been deleted meanwhile.
            there = [each.path for each in self._subscriptions()]
            for path in named or there:  # RabbitMQ cuts long names, which then match none
                if path in there:
                    self._on_missing(path)
        except BrokerError:
            self._entries = -1

    def _subscriptions(self) -> tuple[Subscription, ...]:
        topic = self._leader.entity
        return topic.subscriptions if isinstance(topic, Topic) else ()
