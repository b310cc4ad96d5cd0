"""The takeover of a shard: a new owner waits for its predecessor's end, then for all messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.declarations import QueueState
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sessions.shard_channels import ShardChannels

LOOK_S = 0.05

GONE_S = 5.0
"""The time after which other consumers, if none has gone, count as native ones."""

SETTLE_S = 3.0
"""The shortest takeover after a loss: RabbitMQ may deliver new messages before returned ones."""


async def take_over(
    resource: str,
    windows: ShardChannels,
    *,
    connections: ConsumerConnections,
    has_been_lost: bool,
    arrived: Callable[[], int],
) -> int:
    """Consume a queue until all its messages have come; return the count of native consumers.

    RabbitMQ returns a channel's unacked messages when it removes the channel's consumer. So when
    the queue has no other consumers, all its messages are ready, or delivered to this process.

    Args:
        has_been_lost: this process has lost a channel before.
        arrived: returns the count of messages that have come.

    Raises:
        BrokerError: RabbitMQ does not answer.
    """
    loop = asyncio.get_running_loop()
    look = _Look(await connections.channel(), resource, windows)
    await look.alone()
    since_s = loop.time()
    await windows.begin()
    await look.alone(must_be_answered=True)
    await windows.catch_up()
    waiting = arrived() + look.state.messages
    while arrived() < waiting and not (windows.is_full and look.state.messages):
        if look.is_answered and not look.state.messages:
            break
        await asyncio.sleep(LOOK_S)
        await look.sees_others()
    # This process's messages are on their way; native consumers may have others.
    await windows.catch_up()
    if has_been_lost:
        await asyncio.sleep(max(since_s + SETTLE_S - loop.time(), 0))
    await look.channel.close()
    return look.others


class _Look:
    """A queue's counts of messages and consumers, read again and again.

    RabbitMQ reports a queue that does not answer within 250 ms as empty and without consumers
    (docs/rabbitmq-faults.md: empty-when-dead).
    """

    def __init__(self, channel: Channel, resource: str, windows: ShardChannels) -> None:
        self.channel = channel
        self.state = QueueState(name=resource, messages=0, consumers=0)
        self.others = 0
        self._windows = windows
        self._least = 0
        self._since_s = 0.0

    @property
    def is_answered(self) -> bool:
        """Whether the queue itself has answered: the count includes this process's consumer."""
        return self.state.consumers > 0

    async def alone(self, *, must_be_answered: bool = False) -> None:
        """Read the counts until no predecessor consumes any more."""
        while True:
            sees_others = await self.sees_others()
            if not sees_others and (self.is_answered or not must_be_answered):
                return
            await asyncio.sleep(LOOK_S)

    async def sees_others(self) -> bool:
        """Read the counts; return whether other consumers may be a predecessor's last ones."""
        ours = self._windows.consumers
        declarations = self.channel.declarations
        self.state = await declarations.declare_queue(self.state.name, passive=True)
        self.others = max(self.state.consumers - max(ours, self._windows.consumers), 0)
        now_s = asyncio.get_running_loop().time()
        if not self._least or self.others < self._least:
            self._least, self._since_s = self.others, now_s
        return self.others > 0 and now_s - self._since_s < GONE_S
