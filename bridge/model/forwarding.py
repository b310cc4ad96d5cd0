"""Auto-forwarding: the entities that forward messages or dead letters, and their targets."""

from __future__ import annotations

from bridge.model.entity import Namespace, Queue, Subscription, Topic
from bridge.model.name import SubQueue


def target_of(entity: Queue | Subscription, sub_queue: SubQueue = SubQueue.NONE) -> str:
    """Return the name of the queue or topic to forward to; "": messages stay.

    "A source must not be session-enabled" (Azure), but its dead letters may be forwarded.
    """
    if sub_queue is SubQueue.DEAD_LETTER:
        return entity.forward_dead_lettered_messages_to
    if sub_queue is SubQueue.NONE and not entity.requires_session:
        return entity.forward_to
    return ""


def forwards(entity: Queue | Topic | Subscription) -> bool:
    """Whether an entity forwards messages or dead letters, and so is never idle."""
    return not isinstance(entity, Topic) and bool(
        entity.forward_to or entity.forward_dead_lettered_messages_to
    )


def comes_back(source: Queue | Subscription, namespace: Namespace) -> bool:
    """Whether forwarded messages of a source can reach its queue or topic again."""
    onward = {queue.name.lower(): {queue.forward_to.lower()} for queue in namespace.queues}
    for topic in namespace.topics:
        onward[topic.name.lower()] = {each.forward_to.lower() for each in topic.subscriptions}
    seen: set[str] = set()
    ahead = {source.forward_to.lower()}
    while ahead:
        seen |= ahead
        ahead = {each for name in ahead for each in onward.get(name, ())} - seen
    return source.front.lower() in seen
