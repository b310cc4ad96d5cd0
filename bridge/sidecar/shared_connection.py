"""One connection of the sidecar's, and what all sequencers on it share."""

from __future__ import annotations

import asyncio

from bridge.broker.connection.boot import node_boot
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.errors import BrokerError, PublishRefused
from bridge.model.entity import SendEntity, Topic
from bridge.topology import names
from bridge.topology.shards import active_queues


class SharedConnection:
    """A connection, with the channel for answers.

    Attributes:
        connection: it.
        boot: which boot of RabbitMQ it leads to; known once opened.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.boot = ""
        self._replies: Channel | None = None
        self._opening = asyncio.Lock()

    @property
    def replies(self) -> Channel:
        """Where answers are published."""
        assert self._replies is not None
        return self._replies

    async def open(self) -> None:
        """Learn which boot of RabbitMQ this is, once."""
        async with self._opening:
            if self._replies is None or self._replies.close_reason is not None:
                self.boot = self.boot or await node_boot(self.connection)
                self._replies = await self.connection.channel()

    async def is_full(self, entity: SendEntity, refusal: PublishRefused) -> bool:
        """Whether an entity's queue has refused a message because it is full.

        One that is dead refuses, too, and RabbitMQ then says that it has no messages and no
        consumers.
        """
        if isinstance(entity, Topic) or names.active_exchange(entity.path) not in refusal.text:
            return False  # what else is published to has no limit
        try:
            with await self.connection.channel() as channel:
                declare = channel.declarations.declare_queue
                states = [await declare(each, passive=True) for each in active_queues(entity)]
        except BrokerError:
            return False
        return any(state.messages or state.consumers for state in states)
