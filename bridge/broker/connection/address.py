"""The address of a channel: it tells others whether that channel still is.

A channel that consumes `amq.rabbitmq.reply-to` has an address (direct reply-to), and RabbitMQ
writes it into each message that the channel publishes with that name as its reply-to. To others it
is a queue for as long as the channel's Erlang process lives, and before that ends it has given away
all that was published there (3.10, 4.0 and 4.3).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import NotFound
from bridge.wire.headers import DIRECT_REPLY_TO

POLL_S = 0.01


class HasChannels(Protocol):
    """A connection, or what stands for one."""

    async def channel(self) -> Channel:
        """Open a channel."""


async def take_address(channel: Channel) -> None:
    """Have a channel get an address."""
    await channel.consumers.consume(DIRECT_REPLY_TO, _ignore, no_ack=True)


async def await_end(connection: HasChannels, address: str) -> None:
    """Wait until the channel that has this address is over; `connection` is where to ask."""
    with contextlib.suppress(NotFound), await connection.channel() as channel:
        while True:  # RabbitMQ tells nobody
            await channel.declarations.declare_queue(address, passive=True)
            await asyncio.sleep(POLL_S)


async def is_there(connection: HasChannels, name: str) -> bool:
    """Whether there is a queue, or the channel that has this address; asked on `connection`."""
    with await connection.channel() as channel:
        try:
            await channel.declarations.declare_queue(name, passive=True)
        except NotFound:
            return False
    return True


def _ignore(delivery: Delivery) -> None:
    pass
