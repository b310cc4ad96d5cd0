"""A connection of the sidecar, with the answer channel and addresses that its leaders share."""

from __future__ import annotations

import asyncio
import contextlib

from bridge.broker import failpoint
from bridge.broker.connection.addresses import Addresses
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError, PublishRefused
from bridge.machine.sequencer import Answer
from bridge.model.entity import SendEntity, Topic
from bridge.topology import names
from bridge.topology.shards import active_queues
from bridge.wire.basic import Properties


class SharedConnection:
    """A connection, with a channel for answers to commands.

    Attributes:
        connection: the connection.
        addresses: sends answers, and waits for the ends of earlier leaders' channels.
    """

    def __init__(self, endpoint: Endpoint, connection: Connection) -> None:
        self.connection = connection
        self.addresses = Addresses(endpoint, connection, self._publish)
        self._replies: Channel | None = None
        self._opening = asyncio.Lock()

    @property
    def boot(self) -> str:
        """The boot of RabbitMQ that the connection leads to; "" before `open`."""
        return self.addresses.boot

    async def open(self) -> None:
        """Find out the boot of RabbitMQ and open the channel for answers, unless that is done."""
        async with self._opening:
            if self._replies is None or self._replies.close_reason is not None:
                await self.addresses.open()
                self._replies = await self.connection.channel()

    def answer(self, answer: Answer) -> None:
        """Answer a command; the answer may be lost, and the requester then asks again."""
        properties = Properties(correlation_id=answer.to.correlation_id).encode()
        with contextlib.suppress(BrokerError):
            self.addresses.answer(answer.to.queue, properties, answer.body)

    def _publish(self, address: str, properties: bytes, body: bytes) -> None:
        assert self._replies is not None
        self._replies.publisher.publish("", address, properties, body, mandatory=False)
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
