"""Making the quorum queues that were just declared outlast a kill of RabbitMQ.

A node lists its quorum queues in a file, and writes a new one there half a second late. Killed
before that, it has forgotten the queue with every message that it confirmed; 3.10 may even leave
a queue that takes messages and never confirms them. When another queue is declared, the node looks
into that list for the new name, and writes what it owed the file first (measured on 3.10.8, 4.0.5
and 4.3.6: 12 of 12 queues lost by a kill right after their declaration, none of 208 when another
one was declared after them).
"""

from __future__ import annotations

from bridge.broker.channel import Channel
from bridge.topology import names
from bridge.topology.resources import Queue

LIFETIME_MS = 60_000
"""A kill of the bridge leaves the queue of its seal for so long."""


async def seal(channel: Channel, owner: bytes) -> None:
    """Have all quorum queues that exist now outlast a kill of RabbitMQ.

    Args:
        channel: any; it is free when this returns.
        owner: whoever seals, one call at a time: two who share a queue would not declare it anew.
    """
    name = names.seal(owner)
    await channel.declare_queue(
        Queue(name=name, arguments={"x-queue-type": "quorum", "x-expires": LIFETIME_MS})
    )
    await channel.delete_queue(name)
