"""The order in which the entities of a namespace are emptied and copied: by forwarding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bridge.model.entities import receive_entities
from bridge.model.entity import Namespace, Queue, ReceiveEntity, Topic
from bridge.model.forwarding import target_of
from bridge.model.name import SubQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingEntity:
    """An entity that forwards messages, dead letters, or both.

    Attributes:
        path: the entity.
        messages_to, dead_letters_to: the queue or topic that gets them; "" for none.
    """

    path: str
    messages_to: str
    dead_letters_to: str

    @property
    def targets(self) -> tuple[str, ...]:
        """Where it forwards to."""
        return tuple(
            dict.fromkeys(each for each in (self.messages_to, self.dead_letters_to) if each)
        )


def forwarding(namespace: Namespace) -> tuple[ForwardingEntity, ...]:
    """Return the entities that forward, each before those that its messages can reach.

    So none gets messages any more when its turn comes, if they are emptied in this order. Those
    that forward to each other in a circle stand together, by name.
    """
    found = _forwarding(namespace)
    fronts = {each.path: each.front.lower() for each in receive_entities(namespace)}
    reach = _reach(found, fronts)
    waiting = sorted(found, key=lambda each: each.path.lower())
    ordered: list[ForwardingEntity] = []
    while waiting:
        ahead = {fronts[each.path] for each in waiting}
        fed = {
            target
            for front in ahead
            for target in reach[front]
            if front not in reach.get(target, ())
        }
        ordered += [each for each in waiting if fronts[each.path] not in fed]
        waiting = [each for each in waiting if fronts[each.path] in fed]
    return tuple(ordered)


def circles(namespace: Namespace) -> tuple[str, ...]:
    """Return the paths of entities whose forwarded messages can come back to them."""
    found = _forwarding(namespace)
    fronts = {each.path: each.front.lower() for each in receive_entities(namespace)}
    onward = _onward(found, fronts)
    return tuple(
        each.path
        for each in found
        if fronts[each.path] in _reached(onward, {target.lower() for target in each.targets})
    )


def _onward(found: Iterable[ForwardingEntity], fronts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the queues and topics that each queue or topic forwards to, in lower case."""
    onward: dict[str, set[str]] = {}
    for each in found:
        targets = {target.lower() for target in each.targets}
        onward.setdefault(fronts[each.path], set()).update(targets)
    return onward


def _reach(found: Iterable[ForwardingEntity], fronts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return all that the messages of each queue or topic can reach."""
    onward = _onward(found, fronts)
    return {front: _reached(onward, targets) for front, targets in onward.items()}


def _reached(onward: Mapping[str, set[str]], targets: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    ahead = set(targets)
    while ahead:
        seen |= ahead
        ahead = {each for name in ahead for each in onward.get(name, ())} - seen
    return seen


def _forwarding(namespace: Namespace) -> list[ForwardingEntity]:
    every = (_of(each) for each in receive_entities(namespace))
    return [each for each in every if each.targets]


def _of(entity: ReceiveEntity) -> ForwardingEntity:
    return ForwardingEntity(
        path=entity.path,
        messages_to=target_of(entity),
        dead_letters_to=target_of(entity, SubQueue.DEAD_LETTER),
    )


def copied(namespace: Namespace) -> tuple[Queue | Topic, ...]:
    """Return the queues and topics in the order in which they are copied: by forwarding, by name.

    A topic stands for its subscriptions, too: they are copied together.
    """
    place = {each.path.lower(): number for number, each in enumerate(forwarding(namespace))}
    fronts: dict[str, int] = {}
    for each in receive_entities(namespace):
        if each.path.lower() in place:
            front = each.front.lower()
            fronts[front] = min(fronts.get(front, len(place)), place[each.path.lower()])
    every: list[Queue | Topic] = [*namespace.queues, *namespace.topics]
    return tuple(
        sorted(
            every, key=lambda each: (fronts.get(each.name.lower(), len(place)), each.name.lower())
        )
    )
