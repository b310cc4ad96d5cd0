"""Auto-forwarding: the entities that forward messages or dead letters, and their targets."""

from __future__ import annotations

from bridge.model.entity import Namespace, Queue, Subscription, Topic
from bridge.model.name import SubQueue


def target_of(entity: Queue | Subscription, sub_queue: SubQueue = SubQueue.NONE) -> str:
    """Return the name of the queue or topic to forward to; "": messages stay.

    The dead letters of an entity with sessions may be forwarded; its messages stay. Azure's pages
    say that such an entity has no target, its Python live tests make one, and none says what
    becomes of its messages.
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
    onward = {queue.name.lower(): {target_of(queue).lower()} for queue in namespace.queues}
    for topic in namespace.topics:
        onward[topic.name.lower()] = {target_of(each).lower() for each in topic.subscriptions}
    seen: set[str] = set()
    ahead = {target_of(source).lower()}
    while ahead:
        seen |= ahead
        ahead = {each for name in ahead for each in onward.get(name, ())} - seen
    return source.front.lower() in seen
