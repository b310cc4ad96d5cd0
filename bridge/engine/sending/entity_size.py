"""Full entities of the kinds that RabbitMQ's own bound of a queue cannot limit.

    topics    a topic's size is that of all its subscriptions' messages. RabbitMQ bounds each queue
              singly, and refuses a publish when one of several queues is full, though the others
              have taken it: so subscriptions' queues have no bound
    sessions  the bridge holds the messages of a queue that requires sessions, and RabbitMQ's bound
              counts ready messages only

Gateways refuse sends to such entities.
"""

from __future__ import annotations

from bridge.broker.management.api import Management
from bridge.model import entity as model
from bridge.model.capacity import capacity_mb
from bridge.topology.policy import MEBIBYTE
from bridge.topology.shards import message_queues


async def full_entities(
    namespace: model.Namespace, management: Management
) -> list[model.SendEntity]:
    """Return the entities at or above their maximum size; RabbitMQ's figures are seconds old."""
    entities: list[model.SendEntity] = [
        *(each for each in namespace.topics if each.subscriptions),
        *(each for each in namespace.queues if each.requires_session),
    ]
    names = [name for each in entities for name in message_queues(each)]
    sizes = await management.queue_figures(names)
    return [
        each
        for each in entities
        if sum(sizes[name].bytes for name in message_queues(each) if name in sizes)
        >= capacity_mb(each) * MEBIBYTE
    ]
