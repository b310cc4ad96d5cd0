"""The compiler: the entities of a namespace in, RabbitMQ resources, policies and findings out.

What never changes about an entity is an argument of its resources; what Service Bus lets a user
change is in a policy, shared by all entities of equal settings. See docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.model import entity as model
from bridge.model.errors import EntityConflict
from bridge.topology import names
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX, TTL_MAX_MS, Capabilities
from bridge.topology.findings import namespace_findings, queue_findings, topic_findings
from bridge.topology.policy import MEBIBYTE, PRIORITY, Ceiling, ceiling_policies, share
from bridge.topology.resources import Binding, Exchange, Finding, Queue, Topology, Value

SCHEMA_ARGUMENT = "busbridge-schema"
"""Argument that marks a resource as ours and says which version of this layout made it.

RabbitMQ stores arguments without `x-` and does not compare them when a resource is declared again.
"""

SCHEMA_VERSION = 1

CONSUMER_TIMEOUT_MS = TTL_MAX_MS
"""Our own timers end locks; RabbitMQ's 30 minutes would close a channel with all locks on it.

An argument and no policy: nobody's policy can then shorten it unseen. 3.10 ignores it.
"""

JOURNAL_BYTES_MAX = 1_073_741_824
"""1 GiB: a recovery reads the last few thousand entries, a browser whatever is left."""

JOURNAL_SEGMENT_BYTES = 33_554_432
"""32 MiB: a stream forgets whole segments, so a journal is 3 percent above its limit at most;
32 segments are 64 files."""

DEATH_HEADER = "x-first-death-reason"
"""Why RabbitMQ dead-lettered a message; on every version (`x-last-death-reason` is 4.x only)."""


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
    parts = [compile_shared(capabilities)]
    settings: dict[str, dict[str, Value]] = {}
    for queue in namespace.queues:
        parts.append(compile_queue(queue, capabilities))
        settings[names.active_queue(queue.name)] = queue_settings(queue)
    for topic in namespace.topics:
        parts.append(compile_topic(topic, capabilities))
        for subscription in topic.subscriptions:
            settings[names.active_queue(subscription.path)] = queue_settings(subscription, topic)
    topology = _joined(parts)
    policies = share(
        settings, priority=priority, pattern_bytes_max=capabilities.pattern_bytes_max
    ) + ceiling_policies(_with_tier(ceiling, namespace.tier), priority=priority)
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
        exchanges=(_exchange(names.EVENTS, "fanout"), _exchange(names.OTHER_DEATHS, "direct")),
        queues=(
            Queue(
                name=names.SINK,
                arguments={"x-queue-type": "classic", "x-max-length": 0, **_SCHEMA},
            ),
            _quorum(names.LAPSED, {"x-single-active-consumer": True}),
        ),
    )


def compile_queue(queue: model.Queue, capabilities: Capabilities) -> Topology:
    """Return the resources of one queue, without policies and without what is shared."""
    parts = (
        _dead_letters(queue),
        Topology(
            exchanges=(_exchange(names.active_exchange(queue.name), "fanout"),),
            queues=(
                _active(queue.name),
                _journal(queue.name),
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
        _door(queue.name),
    )
    return _joined(parts)


def compile_topic(topic: model.Topic, capabilities: Capabilities) -> Topology:
    """Return the resources of a topic and its subscriptions, without policies.

    The sequencer publishes to `$active` with one key per queue that shall have the message: the
    journal's name, and that of every subscription whose rules take it.
    """
    active = names.active_exchange(topic.name)
    parts = [
        Topology(
            exchanges=(_exchange(active, "direct"),),
            queues=(_journal(topic.name),),
            bindings=(_by_own_name(active, names.journal(topic.name)),),
            findings=topic_findings(topic, capabilities),
        )
    ]
    parts += [compile_subscription(each, capabilities) for each in topic.subscriptions]
    return _joined([*parts, _door(topic.name)])


def compile_subscription(subscription: model.Subscription, capabilities: Capabilities) -> Topology:
    """Return the resources of one subscription; its topic's must be there."""
    own = Topology(
        queues=(_active(subscription.path),),
        bindings=(
            _by_own_name(
                names.active_exchange(subscription.topic), names.active_queue(subscription.path)
            ),
        ),
        findings=queue_findings(subscription, subscription.path, capabilities),
    )
    return _joined([_dead_letters(subscription), own])


def bucket_queue(entity: str, level: int, slot: int) -> Queue:
    """Return the queue in which scheduled messages of one interval wait."""
    return _quorum(names.bucket(entity, level, slot), {})


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


_SCHEMA: dict[str, Value] = {SCHEMA_ARGUMENT: SCHEMA_VERSION}


def _exchange(name: str, kind: str, **arguments: Value) -> Exchange:
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    return Exchange(name=name, type=kind, arguments=given | _SCHEMA)


def _quorum(name: str, arguments: dict[str, Value]) -> Queue:
    always: dict[str, Value] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT_MAX,
        "x-consumer-timeout": CONSUMER_TIMEOUT_MS,
    }
    return Queue(name=name, arguments=always | arguments | _SCHEMA)


def _dead_lettering(exchange: str, routing_key: str) -> dict[str, Value]:
    """At least once needs `reject-publish`; without it RabbitMQ silently dead-letters at most once.

    Without a key of its own a dead letter would go by all CC and BCC keys of the message.
    """
    return {
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-routing-key": routing_key,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def _by_own_name(exchange: str, queue: str) -> Binding:
    return Binding(source=exchange, destination=queue, routing_key=queue)


def _door(entity: str) -> Topology:
    """What is sent waits here for its number; what expires here comes back to the sequencer."""
    inbox = _quorum(
        names.inbox(entity),
        {"x-single-active-consumer": True} | _dead_lettering("", names.LAPSED),
    )
    return Topology(
        exchanges=(_exchange(names.front(entity), "fanout"),),
        queues=(inbox,),
        bindings=(Binding(source=names.front(entity), destination=inbox.name),),
    )


def _active(entity: str) -> Queue:
    """The limit here only keeps a returned message in its place; the policy's is the smaller."""
    return _quorum(
        names.active_queue(entity),
        _dead_lettering(names.dead_letter_exchange(entity), names.dead_letter_queue(entity)),
    )


def _journal(entity: str) -> Queue:
    return Queue(
        name=names.journal(entity),
        arguments={
            "x-queue-type": "stream",
            "x-max-length-bytes": JOURNAL_BYTES_MAX,
            "x-stream-max-segment-size-bytes": JOURNAL_SEGMENT_BYTES,
            **_SCHEMA,
        },
    )


def _dead_letters(entity: model.Queue | model.Subscription) -> Topology:
    """Dead letters by their reason; a reason that no binding names takes the alternate exchange.

    Nothing may stay unrouted: at least once, RabbitMQ would keep it for ever, and it would count
    against the queue's size.
    """
    path = entity.name if isinstance(entity, model.Queue) else entity.path
    exchange, dead = names.dead_letter_exchange(path), names.dead_letter_queue(path)
    expired = dead if entity.dead_lettering_on_message_expiration else names.SINK
    bindings = [
        Binding(
            source=exchange,
            destination=destination,
            routing_key=destination,
            arguments={"x-match": "all-with-x", DEATH_HEADER: reason},
        )
        for reason, destination in (
            ("delivery_limit", dead),
            ("expired", expired),
            ("rejected", dead),
        )
    ]
    return Topology(
        exchanges=(_exchange(exchange, "headers", alternate_exchange=names.OTHER_DEATHS),),
        queues=(_quorum(dead, {}),),
        bindings=(_by_own_name(names.OTHER_DEATHS, dead), *bindings),
    )


def _with_tier(ceiling: Ceiling | None, tier: model.Tier) -> Ceiling:
    ceiling = ceiling or Ceiling()
    longest_ms = model.TIER_TIME_TO_LIVE_MAX_MS[tier]
    if ceiling.time_to_live_ms is not None:
        longest_ms = min(longest_ms, ceiling.time_to_live_ms)
    return Ceiling(
        time_to_live_ms=longest_ms,
        size_bytes=ceiling.size_bytes,
        delivery_limit=ceiling.delivery_limit,
    )


def _joined(parts: Iterable[Topology]) -> Topology:
    """Return the parts as one; resources of the first part come first.

    Raises:
        EntityConflict: two parts have a resource of one name.
    """
    exchanges: dict[str, Exchange] = {}
    queues: dict[str, Queue] = {}
    bindings: list[Binding] = []
    findings: list[Finding] = []
    for part in parts:
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
