"""How a bridge begins to hold a session entity: after its predecessor, and with everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.declarations import QueueState
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sessions.windows import Windows

LOOK_S = 0.05

GONE_S = 5.0
"""Consumers of which none has gone for this time are natives', not a predecessor's."""

SETTLE_S = 3.0
"""After a failure of RabbitMQ what was never delivered may come before what was held."""


async def take_over(
    resource: str,
    windows: Windows,
    *,
    connections: ConsumerConnections,
    has_been_lost: bool,
    arrived: Callable[[], int],
) -> int:
    """Consume a queue; returns when all that is in it has come, with the count of natives.

    RabbitMQ gives back what a channel held when it takes the channel's consumer off: when the queue
    has no other consumers, all its messages are ready, or given to this process.

    Args:
        has_been_lost: this process has lost a channel before.
        arrived: returns how many messages have come.

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
    # What is ours is on its way; of the rest somebody else has taken some.
    await windows.catch_up()
    if has_been_lost:
        await asyncio.sleep(max(since_s + SETTLE_S - loop.time(), 0))
    await look.channel.close()
    return look.others


class _Look:
    """What RabbitMQ says of a queue.

    A queue that does not answer within 250 ms it says to be empty, without consumers
    (docs/rabbitmq-faults.md: empty-when-dead).
    """

    def __init__(self, channel: Channel, resource: str, windows: Windows) -> None:
        self.channel = channel
        self.state = QueueState(name=resource, messages=0, consumers=0)
        self.others = 0
        self._windows = windows
        self._least = 0
        self._since_s = 0.0

    @property
    def is_answered(self) -> bool:
        """Whether the queue itself has said so: this process is one of its consumers."""
        return self.state.consumers > 0

    async def alone(self, *, must_be_answered: bool = False) -> None:
        """Look until no predecessor consumes any more."""
        while True:
            sees_others = await self.sees_others()
            if not sees_others and (self.is_answered or not must_be_answered):
                return
            await asyncio.sleep(LOOK_S)

    async def sees_others(self) -> bool:
        """Look; return whether others consume who may be a predecessor's last."""
        ours = self._windows.consumers
        declarations = self.channel.declarations
        self.state = await declarations.declare_queue(self.state.name, passive=True)
        self.others = max(self.state.consumers - max(ours, self._windows.consumers), 0)
        now_s = asyncio.get_running_loop().time()
        if not self._least or self.others < self._least:
            self._least, self._since_s = self.others, now_s
        return self.others > 0 and now_s - self._since_s < GONE_S
