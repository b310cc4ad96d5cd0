"""Which topics are full: a topic is as large as what waits in all of its subscriptions.

RabbitMQ bounds each queue by itself and refuses a publish that one of several full queues does not
take, though the others have it. So queues of subscriptions have no bound of their own: doors refuse
what is sent to a full topic.
"""

from __future__ import annotations

from bridge.broker.management.api import Management
from bridge.model import entity as model
from bridge.topology import names
from bridge.topology.policy import MEBIBYTE


async def full_topics(namespace: model.Namespace, management: Management) -> list[model.Topic]:
    """Return the topics above their size, by figures of RabbitMQ's that are seconds old."""
    if not any(topic.subscriptions for topic in namespace.topics):
        return []
    rows = await management.queues(("name", "message_bytes"))
    sizes = {row["name"]: row.get("message_bytes") or 0 for row in rows}
    return [
        topic
        for topic in namespace.topics
        if size_bytes(topic, sizes) >= topic.max_size_mb * MEBIBYTE
    ]


def size_bytes(topic: model.Topic, sizes: dict[str, int]) -> int:
    """Return what a topic holds, by the sizes of queues."""
    return sum(
        sizes.get(name(each.path), 0)
        for each in topic.subscriptions
        for name in (names.active_queue, names.dead_letter_queue, names.deferred_queue)
    )
