"""Which entities are full that RabbitMQ's own bound of a queue does not hold.

    topics    a topic is as large as what waits in all of its subscriptions. RabbitMQ bounds each
              queue by itself and refuses a publish that one of several full queues does not take,
              though the others have it: so queues of subscriptions have no bound of their own
    sessions  a bridge holds the messages of a queue that requires sessions, and RabbitMQ's bound
              counts only what nobody holds

Gateways refuse what is sent to these.
"""

from __future__ import annotations

from bridge.broker.management.api import Management
from bridge.model import entity as model
from bridge.topology.policy import MEBIBYTE
from bridge.topology.shards import message_queues


async def full_entities(
    namespace: model.Namespace, management: Management
) -> list[model.SendEntity]:
    """Return those above their size, by figures of RabbitMQ's that are seconds old."""
    entities: list[model.SendEntity] = [
        *(each for each in namespace.topics if each.subscriptions),
        *(each for each in namespace.queues if each.requires_session),
    ]
    sizes = await management.queue_bytes([name for e in entities for name in message_queues(e)])
    return [
        each
        for each in entities
        if sum(sizes.get(name, 0) for name in message_queues(each)) >= each.max_size_mb * MEBIBYTE
    ]
