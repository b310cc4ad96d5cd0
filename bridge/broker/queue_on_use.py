"""Queues of an entity that the first bridge to use them makes."""

from __future__ import annotations

import os

from bridge.broker.connection.address import HasChannels, is_there
from bridge.broker.connection.declarations import QueueState
from bridge.broker.declaration_fence import fence_declarations
from bridge.broker.errors import NotFound
from bridge.broker.failpoint import reach
from bridge.topology.resources import Queue

POINT = "queue.made_on_use"


def is_in_use(state: QueueState | None) -> bool:
    """Whether a queue exists and outlasts a kill of RabbitMQ.

    One without messages and consumers may have been declared this instant, by another bridge.
    """
    return state is not None and bool(state.messages or state.consumers)


async def make_on_use(connection: HasChannels, queue: Queue, exchange: str) -> None:
    """Make a queue, unless it exists; it outlasts a kill of RabbitMQ then.

    Several bridges may make it at once. A bridge that makes it while another one deletes the entity
    takes it away again: the entity's exchanges are deleted before its queues are listed. A queue
    that was there before stays: perhaps the exchange alone was deleted, by hand.

    Args:
        connection: carries the declarations.
        exchange: an exchange of the queue's entity.

    Raises:
        NotFound: there is no such exchange.
        BrokerError: RabbitMQ does not make the queue.
    """
    is_new = not await is_there(connection, queue.name)
    with await connection.channel() as channel:
        await channel.declarations.declare_queue(queue)
        reach(POINT, channel)
        await fence_declarations(channel, os.urandom(8))
        try:
            await channel.declarations.declare_exchange(exchange, passive=True)
        except NotFound:
            if is_new:
                with await connection.channel() as other:
                    await other.declarations.delete_queue(queue.name)
            raise
