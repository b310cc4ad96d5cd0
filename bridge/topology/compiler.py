"""The compiler: the entities of a namespace in, RabbitMQ resources, policies and findings out.

What never changes about an entity is an argument of its resources; what Service Bus lets a user
change is in a policy, shared by all entities of equal settings. See docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.model import entity as model
from bridge.model.errors import EntityConflict
from bridge.topology import names, parts
from bridge.topology.capabilities import TTL_MAX_MS, Capabilities
from bridge.topology.findings import namespace_findings, queue_findings, topic_findings
from bridge.topology.parts import bucket_queue
from bridge.topology.policy import MEBIBYTE, PRIORITY, Ceiling, ceiling_policies, share
from bridge.topology.resources import Binding, Exchange, Finding, Queue, Topology, Value

__all__ = [
    "bucket_queue",
    "compile",
    "compile_queue",
    "compile_shared",
    "compile_subscription",
    "compile_topic",
    "joined",
    "queue_settings",
    "with_tier",
]


def compile(  # noqa: A001 - the compiler's one verb
    namespace: model.Namespace,
    capabilities: Capabilities,
    *,
    priority: int = PRIORITY,
    ceiling: Ceiling | None = None,
) -> Topology:
    """Return all that a namespace is in RabbitMQ, in an order in which it can be declared.

    Args:
        priority: that of the policies.
        ceiling: what no entity may exceed; the tier's longest TTL is always one.

    Raises:
        EntityConflict: two entities would need resources of one name.
    """
    pieces = [compile_shared(capabilities)]
    settings: dict[str, dict[str, Value]] = {}
    for queue in namespace.queues:
        pieces.append(compile_queue(queue, capabilities))
        settings[names.active_queue(queue.name)] = queue_settings(queue)
    for topic in namespace.topics:
        pieces.append(compile_topic(topic, capabilities))
        for subscription in topic.subscriptions:
            settings[names.active_queue(subscription.path)] = queue_settings(subscription, topic)
    topology = joined(pieces)
    policies = share(
        settings, priority=priority, pattern_bytes_max=capabilities.pattern_bytes_max
    ) + ceiling_policies(with_tier(ceiling, namespace.tier), priority=priority)
    return Topology(
        exchanges=topology.exchanges,
        queues=topology.queues,
        bindings=topology.bindings,
        policies=policies,
        findings=namespace_findings(namespace, capabilities) + topology.findings,
    )


def compile_shared(capabilities: Capabilities) -> Topology:
    """Return what all entities share; it must be there before any of them."""
    return Topology(
        exchanges=(
            parts.fixed_exchange(names.EVENTS, "fanout"),
            parts.fixed_exchange(names.OTHER_DEATHS, "direct"),
        ),
        queues=(
            parts.sink(),
            parts.quorum_queue(names.LAPSED, {"x-single-active-consumer": True}),
        ),
    )


def compile_queue(queue: model.Queue, capabilities: Capabilities) -> Topology:
    """Return the resources of one queue, without policies and without what is shared."""
    pieces = (
        parts.dead_letters(queue),
        Topology(
            exchanges=(parts.fixed_exchange(names.active_exchange(queue.name), "fanout"),),
            queues=(
                parts.active_queue(queue.name),
                parts.deferred_queue(queue.name),
                parts.journal(queue.name),
            ),
            bindings=(
                Binding(
                    source=names.active_exchange(queue.name),
                    destination=names.active_queue(queue.name),
                ),
                Binding(
                    source=names.active_exchange(queue.name),
                    destination=names.journal(queue.name),
                ),
            ),
            findings=queue_findings(queue, queue.name, capabilities),
        ),
        parts.door(queue.name),
    )
    return joined(pieces)


def compile_topic(topic: model.Topic, capabilities: Capabilities) -> Topology:
    """Return the resources of a topic and its subscriptions, without policies.

    The sequencer publishes to `$active` with one key per queue that shall have the message: the
    journal's name, and that of every subscription whose rules take it.
    """
    active = names.active_exchange(topic.name)
    pieces = [
        Topology(
            exchanges=(parts.fixed_exchange(active, "direct"),),
            queues=(parts.journal(topic.name),),
            bindings=(parts.bound_by_own_name(active, names.journal(topic.name)),),
            findings=topic_findings(topic, capabilities),
        )
    ]
    pieces += [compile_subscription(each, capabilities) for each in topic.subscriptions]
    return joined([*pieces, parts.door(topic.name)])


def compile_subscription(subscription: model.Subscription, capabilities: Capabilities) -> Topology:
    """Return the resources of one subscription; its topic's must be there."""
    own = Topology(
        queues=(parts.active_queue(subscription.path), parts.deferred_queue(subscription.path)),
        bindings=(
            parts.bound_by_own_name(
                names.active_exchange(subscription.topic), names.active_queue(subscription.path)
            ),
        ),
        findings=queue_findings(subscription, subscription.path, capabilities),
    )
    return joined([parts.dead_letters(subscription), own])


def queue_settings(
    entity: model.Queue | model.Subscription, topic: model.Topic | None = None
) -> dict[str, Value]:
    """Return what a policy says about an entity's active queue; a subscription needs its topic.

    MaxDeliveryCount deliveries are `delivery-limit` + 1. A TTL that RabbitMQ cannot hold is left
    out: the bridge keeps the true one.
    """
    sized = topic if isinstance(entity, model.Subscription) else entity
    time_to_live_ms = entity.default_message_time_to_live_ms
    if topic is not None:
        time_to_live_ms = min(time_to_live_ms, topic.default_message_time_to_live_ms)
    settings: dict[str, Value] = {"delivery-limit": entity.max_delivery_count - 1}
    if sized is not None:
        settings["max-length-bytes"] = sized.max_size_mb * MEBIBYTE
    if time_to_live_ms <= TTL_MAX_MS:
        settings["message-ttl"] = time_to_live_ms
    return settings


def with_tier(ceiling: Ceiling | None, tier: model.Tier) -> Ceiling:
    """Return a ceiling that is no higher than what the tier allows."""
    ceiling = ceiling or Ceiling()
    longest_ms = model.TIER_TIME_TO_LIVE_MAX_MS[tier]
    if ceiling.time_to_live_ms is not None:
        longest_ms = min(longest_ms, ceiling.time_to_live_ms)
    return Ceiling(
        time_to_live_ms=longest_ms,
        size_bytes=ceiling.size_bytes,
        delivery_limit=ceiling.delivery_limit,
    )


def joined(pieces: Iterable[Topology]) -> Topology:
    """Return the pieces as one; resources of the first part come first.

    Raises:
        EntityConflict: two pieces have a resource of one name.
    """
    exchanges: dict[str, Exchange] = {}
    queues: dict[str, Queue] = {}
    bindings: list[Binding] = []
    findings: list[Finding] = []
    for part in pieces:
        for exchange in part.exchanges:
            if exchanges.setdefault(exchange.name, exchange) is not exchange:
                raise EntityConflict(f"Two entities need the RabbitMQ exchange {exchange.name!r}.")
        for queue in part.queues:
            if queues.setdefault(queue.name, queue) is not queue:
                raise EntityConflict(f"Two entities need the RabbitMQ queue {queue.name!r}.")
        bindings += part.bindings
        findings += part.findings
    return Topology(
        exchanges=tuple(exchanges.values()),
        queues=tuple(queues.values()),
        bindings=tuple(bindings),
        findings=tuple(findings),
    )
