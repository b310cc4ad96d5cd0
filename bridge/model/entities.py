"""The entities of a namespace, by what clients do with them."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.model.entity import Namespace, ReceiveEntity, SendEntity


def send_entities(namespace: Namespace) -> Iterator[SendEntity]:
    """Yield all entities that take sent messages."""
    yield from namespace.queues
    yield from namespace.topics


def receive_entities(namespace: Namespace) -> Iterator[ReceiveEntity]:
    """Yield all entities from which messages are received."""
    yield from namespace.queues
    for topic in namespace.topics:
        yield from topic.subscriptions
