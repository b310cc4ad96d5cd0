"""The declaration fence: earlier declarations and deletions then outlast a kill of RabbitMQ.

RabbitMQ answers before two writes are on its disk (docs/rabbitmq-faults.md: last-change,
youngest-queue, first-stream):

* The database (Mnesia: 4.0) commits a declaration or deletion of a queue, an exchange or a binding
  by two records, and does not wait for the second to reach the disk. Until it does, up to 2 s later
  or with the next change of that kind, a kill undoes the last change. Measured on 4.0.5: the second
  record missing in 5 of 200 answers. A quorum queue whose deletion is undone exists again without
  its members, and refuses every publish, for ever.
* A node lists its quorum queues in a file that it writes half a second late. A kill before that
  write loses the youngest queue with every message that it confirmed. When another queue is
  declared, the node looks into the list for the new name, and writes the file first (measured on
  4.0.5 and 4.3.6: 12 of 12 queues lost by a kill right after their declaration, none of 208 when
  another one was declared after them).
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.broker.connection.channel import Channel
from bridge.topology import names
from bridge.topology.parts import SCHEMA
from bridge.topology.resources import Exchange, Queue, Topology

LIFETIME_MS = 60_000
"""Time after which RabbitMQ deletes the queue of a fence that a killed bridge has left."""

FIRST_STREAM_S = 2.0
"""Time until a node's first stream outlasts a kill; no fence shortens it. With its first stream a
node begins to keep a register of streams: a kill 0.7 s later leaves the node without streams for
good (4.0.5, 4.3.6), a kill 1 s later does not."""

EXCHANGE = Exchange(name=names.DECLARATION_FENCE, type="fanout", arguments=SCHEMA)
"""The exchange that a fence declares and deletes as its last changes."""


def queue(owner: bytes) -> Queue:
    """Return the queue of one owner's fence; it is declared and deleted before `EXCHANGE`."""
    return Queue(
        name=names.declaration_fence(owner),
        arguments={"x-queue-type": "quorum", "x-expires": LIFETIME_MS},
    )


def wait_s(made: Iterable[object], there: Topology) -> float:
    """Return the seconds for which a fence does not protect new resources.

    That is `FIRST_STREAM_S` when the new resources contain the first stream, else 0.

    Args:
        made: the new resources.
        there: the resources that existed before.
    """
    has_first = any(map(is_stream, made)) and not any(map(is_stream, there.queues))
    return FIRST_STREAM_S if has_first else 0.0


def is_stream(resource: object) -> bool:
    """Whether a resource is a stream."""
    return isinstance(resource, Queue) and resource.arguments.get("x-queue-type") == "stream"


async def fence_declarations(channel: Channel, owner: bytes) -> None:
    """Have all earlier declarations, quorum queues too, outlast a kill of RabbitMQ.

    Args:
        channel: any channel; it is free when this returns.
        owner: names the fence's queue. An owner makes one call at a time: of two calls with the
            same queue, the second would find the queue and not declare a new one.
    """
    await channel.declarations.declare_queue(queue(owner))
    await delete(channel, names.declaration_fence(owner))


async def delete(channel: Channel, queue_name: str) -> None:
    """Delete a queue, and have the deletion outlast a kill of RabbitMQ.

    In a cluster with a dead node the deletion takes 5 s (docs/rabbitmq-faults.md: slow-delete).
    """
    await channel.declarations.delete_queue(queue_name)
    await fence_deletions(channel)


async def fence_deletions(channel: Channel) -> None:
    """Have earlier deletions, and declarations of all but quorum queues, outlast a kill.

    The last change is the deletion of an exchange that is not used otherwise. A kill may undo that
    one deletion.
    """
    await channel.declarations.declare_exchange(EXCHANGE)
    await channel.declarations.delete_exchange(EXCHANGE.name)
