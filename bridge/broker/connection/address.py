"""A channel's direct reply-to address: other connections ask by it whether the channel is open.

A channel that consumes `amq.rabbitmq.reply-to` has an address (direct reply-to). RabbitMQ writes
the address into each message that the channel publishes with `amq.rabbitmq.reply-to` as its
reply-to. To other channels the address looks like a queue for as long as the channel's Erlang
process lives. Before the process ends, it has passed on all messages that the channel published
(4.0 and 4.3).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.declarations import QueueState
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import NotFound
from bridge.wire.headers import DIRECT_REPLY_TO

POLL_S = 0.01


class HasChannels(Protocol):
    """A connection, or another object that opens channels on one, such as a lease of a pool."""

    async def channel(self) -> Channel:
        """Open a channel."""


async def take_address(channel: Channel) -> None:
    """Give a channel an address, by a consumer of `amq.rabbitmq.reply-to`."""
    await channel.consumers.consume(DIRECT_REPLY_TO, _ignore, no_ack=True)


async def await_end(connection: HasChannels, address: str) -> None:
    """Wait until the channel with this address has ended; `connection` carries the checks."""
    with contextlib.suppress(NotFound), await connection.channel() as channel:
        while True:  # RabbitMQ sends no notification when a channel ends
            await channel.declarations.declare_queue(address, passive=True)
            await asyncio.sleep(POLL_S)


async def is_there(connection: HasChannels, name: str) -> bool:
    """Whether a queue, or a channel with this address, exists; `connection` carries the check."""
    return await state_of(connection, name) is not None


async def state_of(connection: HasChannels, name: str) -> QueueState | None:
    """Return the state of a queue, or of a channel's address; `None` when there is none."""
    with await connection.channel() as channel:
        try:
            return await channel.declarations.declare_queue(name, passive=True)
        except NotFound:
            return None


def _ignore(delivery: Delivery) -> None:
    pass
