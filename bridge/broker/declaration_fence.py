"""The declaration fence: what was declared, or deleted, before it outlasts a kill of RabbitMQ.

Two things are late when RabbitMQ answers (docs/rabbitmq-faults.md: last-change,
youngest-queue, first-stream):

* Its database (Mnesia: 3.10, 4.0) commits a declaration or deletion of a queue, an exchange or a
  binding by two records, and does not wait for the second to reach the disk. Until it does, up to
  2 s later or with the next change of that kind, a kill takes the last change back. Measured on
  3.10.8: 13 of 117 durable classic queues forgotten that a busy node had declared last before it
  was killed, none of 62 that were not the last; the second record missing in 5 of 200 answers on
  3.10.8 and 4.0.5. A quorum queue whose deletion is taken back is there again without its members,
  and refuses whatever is published to it, for ever.
* A node lists its quorum queues in a file that it writes half a second late. Killed before that, it
  has forgotten the youngest with every message that it confirmed; 3.10 may even leave a queue that
  takes messages and never confirms them. When another queue is declared, the node looks into that
  list for the new name, and writes what it owed the file first (measured on 3.10.8, 4.0.5 and
  4.3.6: 12 of 12 queues lost by a kill right after their declaration, none of 208 when another one
  was declared after them).
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.broker.connection.channel import Channel
from bridge.topology import names
from bridge.topology.parts import SCHEMA
from bridge.topology.resources import Exchange, Queue, Topology

LIFETIME_MS = 60_000
"""A kill of the bridge leaves the queue of its fence for so long."""

FIRST_STREAM_S = 2.0
"""With its first stream a node begins to keep a register of streams, and no fence helps that one: a
kill 0.7 s later leaves the node without streams for good (3.10.8, 4.0.5, 4.3.6), 1 s later not."""

EXCHANGE = Exchange(name=names.DECLARATION_FENCE, type="fanout", arguments=SCHEMA)
"""What is declared and deleted last of all."""


def queue(owner: bytes) -> Queue:
    """Return the queue that is declared and deleted before that."""
    return Queue(
        name=names.declaration_fence(owner),
        arguments={"x-queue-type": "quorum", "x-expires": LIFETIME_MS},
    )


def wait_s(made: Iterable[object], there: Topology) -> float:
    """Return for how long a fence does not help what was made, beside what was there."""
    has_first = any(map(is_stream, made)) and not any(map(is_stream, there.queues))
    return FIRST_STREAM_S if has_first else 0.0


def is_stream(resource: object) -> bool:
    """Whether a resource is a stream."""
    return isinstance(resource, Queue) and resource.arguments.get("x-queue-type") == "stream"


async def fence_declarations(channel: Channel, owner: bytes) -> None:
    """Have all that was declared before, quorum queues too, outlast a kill of RabbitMQ.

    Args:
        channel: any; it is free when this returns.
        owner: whoever asks, one call at a time: two who share a queue would not declare it anew.
    """
    await channel.declarations.declare_queue(queue(owner))
    await delete(channel, names.declaration_fence(owner))


async def delete(channel: Channel, queue_name: str) -> None:
    """Delete a queue, and have that outlast a kill.

    In a cluster with a dead node that takes 5 s (docs/rabbitmq-faults.md: slow-delete).
    """
    await channel.declarations.delete_queue(queue_name)
    await fence_deletions(channel)


async def fence_deletions(channel: Channel) -> None:
    """Have all deletions before, and declarations of all but quorum queues, outlast a kill.

    The last change of all is that of an exchange which nobody uses: it may be there afterwards.
    """
    await channel.declarations.declare_exchange(EXCHANGE)
    await channel.declarations.delete_exchange(EXCHANGE.name)
