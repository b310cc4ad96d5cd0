"""The bridge's flavour: the RabbitMQ resources of an entity when the bridge runs."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.model import entity as model
from bridge.model.entities import send_entities
from bridge.model.forwarding import target_of
from bridge.model.name import short_id
from bridge.topology import names, parts, shards
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX, Capabilities
from bridge.topology.definitions import incarnation_of
from bridge.topology.findings import entity_findings, namespace_findings
from bridge.topology.flavour import queue_settings
from bridge.topology.resources import Binding, Queue, Topology, Value


class Bridged:
    """The flavour of the bridge.

    Resource names are lower case, as Service Bus ignores case; the definitions keep the case.
    """

    def pieces(self, namespace: model.Namespace, capabilities: Capabilities) -> Iterator[Topology]:
        """Yield the resources that all entities share, then those of each entity."""
        yield Topology(findings=namespace_findings(capabilities))
        yield shared()
        for queue in namespace.queues:
            yield from queue_pieces(queue, capabilities)
        for topic in namespace.topics:
            yield from topic_pieces(topic, capabilities)

    def made_on_use(self, namespace: model.Namespace) -> Iterator[Queue]:
        """Yield one history if an entity may need one; other such queues have policies anyway."""
        for entity in send_entities(namespace):
            if entity.requires_duplicate_detection:
                yield parts.history(entity.path)
                return

    def settings(self, namespace: model.Namespace) -> dict[str, dict[str, Value]]:
        """Return the policy settings of each active queue, by the queue's name."""
        found = {
            name: _settings(queue)
            for queue in namespace.queues
            for name in shards.active_queues(queue)
        }
        for topic in namespace.topics:
            for each in topic.subscriptions:
                settings = _settings(each, topic)
                # A publish that one full queue refuses is in the other queues all the same. So
                # these have no size limit: bridges and clients refuse messages to a full topic.
                settings.pop("max-length-bytes", None)
                found |= dict.fromkeys(shards.active_queues(each), settings)
        return found


def shared() -> Topology:
    """Return the resources that all entities share; they must exist before any entity's."""
    return Topology(
        exchanges=(
            parts.fixed_exchange(names.EVENTS, "fanout"),
            parts.fixed_exchange(names.OTHER_DEATHS, "direct"),
        ),
        queues=(
            parts.sink(),
            parts.quorum_queue(names.EXPIRED_UNNUMBERED, {"x-single-active-consumer": True}),
        ),
    )


def queue_pieces(queue: model.Queue, capabilities: Capabilities) -> Iterator[Topology]:
    """Yield the resources of one queue, without the shared ones."""
    yield Topology(queues=(parts.moved(queue.name),))
    yield from _dead_letters(queue)
    active = names.active_exchange(queue.name)
    kind = "fanout" if shards.count_of(queue) == 1 else "direct"
    yield Topology(
        exchanges=(parts.fixed_exchange(active, kind),),
        queues=(*_active(queue), parts.journal(queue.name)),
        bindings=tuple(
            Binding(source=active, destination=destination, routing_key=shards.queue_key(queue, at))
            for at, shard in enumerate(shards.active_queues(queue))
            for destination in (shard, names.journal(queue.name))
        ),
        findings=entity_findings(queue, capabilities),
    )
    yield parts.front_and_inbox(queue.name)


def topic_pieces(topic: model.Topic, capabilities: Capabilities) -> Iterator[Topology]:
    """Yield the resources of a topic and its subscriptions.

    The sequencer publishes to `$active` with one key for each queue that is to have the message:
    the journal's key, and the key of every subscription whose rules match (`names.copy_key`).
    """
    active = names.active_exchange(topic.name)
    yield Topology(
        exchanges=(parts.fixed_exchange(active, "direct"),),
        queues=(parts.journal(topic.name), parts.moved(topic.name)),
        findings=entity_findings(topic, capabilities),
    )
    for each in topic.subscriptions:
        yield from _subscription_pieces(each, capabilities)
    # Last: what the journal has counts as published, and must be in the subscriptions' queues.
    journal = names.journal(topic.name)
    bound = Binding(source=active, destination=journal, routing_key=names.JOURNAL_KEY)
    yield Topology(bindings=(bound,))
    yield parts.front_and_inbox(topic.name)


def _subscription_pieces(
    subscription: model.Subscription, capabilities: Capabilities
) -> Iterator[Topology]:
    yield from _dead_letters(subscription)
    yield Topology(
        queues=_active(subscription),
        bindings=tuple(
            Binding(
                source=names.active_exchange(subscription.topic),
                destination=shard,
                routing_key=names.copy_key(short_id(incarnation_of(subscription)), at),
            )
            for at, shard in enumerate(shards.active_queues(subscription))
        ),
        findings=entity_findings(subscription, capabilities),
    )


def _settings(
    entity: model.Queue | model.Subscription, topic: model.Topic | None = None
) -> dict[str, Value]:
    """Return the policy settings of an entity's active queue.

    A session entity has no delivery limit in RabbitMQ: the owner counts deliveries itself, since
    RabbitMQ counts one more for every message whenever the owner changes. Nor has an entity that
    forwards: RabbitMQ would count a forward as a delivery.
    """
    settings = queue_settings(entity, topic)
    if entity.requires_session or target_of(entity):
        settings["delivery-limit"] = DELIVERY_LIMIT_MAX
    return settings


def _active(entity: model.Queue | model.Subscription) -> tuple[Queue, ...]:
    """Return the queues of an entity's active messages, one for each shard."""
    count = shards.count_of(entity)
    return tuple(parts.active_queue(entity.path, shard) for shard in range(count))


def _dead_letters(entity: model.Queue | model.Subscription) -> Iterator[Topology]:
    """Yield an entity's dead-letter exchange, queue and bindings, and those to `$moved`."""
    exchange = names.dead_letter_exchange(entity.path)
    dead = names.dead_letter_queue(entity.path)
    keeps_expired = entity.dead_lettering_on_message_expiration
    yield parts.dead_letters(exchange, dead, keeps_expired=keeps_expired)
    yield parts.also_moved(exchange, dead, names.moved(entity.front), keeps_expired=keeps_expired)
