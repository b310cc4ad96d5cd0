"""A connection of the sidecar, with the answer channel and the boot that its leaders share."""

from __future__ import annotations

import asyncio
import contextlib

from bridge.broker import failpoint
from bridge.broker.connection.boot import node_boot
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.errors import BrokerError, PublishRefused
from bridge.machine.inbox.applied import SenderAnswer
from bridge.model.entity import SendEntity, Topic
from bridge.topology import names
from bridge.topology.shards import active_queues
from bridge.wire.basic import Properties


class SharedConnection:
    """A connection, with a channel for answers to commands.

    Attributes:
        connection: the connection.
        boot: the boot of RabbitMQ that the connection leads to; "" before `open`.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.boot = ""
        self._replies: Channel | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Find out the boot of RabbitMQ and open the channel for answers, unless that is done."""
        async with self._opening:
            if self._replies is None or self._replies.close_reason is not None:
                self.boot = self.boot or await node_boot(self.connection)
                self._replies = await self.connection.channel()

    def answer(self, answer: SenderAnswer) -> None:
        """Answer a command; the answer may be lost, and the requester then asks again."""
        properties = Properties(correlation_id=answer.to.correlation_id).encode()
        assert self._replies is not None
        with contextlib.suppress(BrokerError):
            publish = self._replies.publisher.publish
            publish("", answer.to.queue, properties, answer.body, mandatory=False)
            failpoint.reach("sequencer.answered", self._replies)

    async def is_full(self, entity: SendEntity, refusal: PublishRefused) -> bool:
        """Whether a queue of an entity has refused a message because it is full.

        A dead queue refuses, too; RabbitMQ then reports no messages and no consumers for it.
        """
        if isinstance(entity, Topic) or names.active_exchange(entity.path) not in refusal.text:
            return False  # no other queue of the leader refuses a message as full
        try:
            with await self.connection.channel() as channel:
                declare = channel.declarations.declare_queue
                states = [await declare(each, passive=True) for each in active_queues(entity)]
        except BrokerError:
            return False
        return any(state.messages or state.consumers for state in states)
