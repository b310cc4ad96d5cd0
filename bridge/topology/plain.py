"""The plain flavour: as much of a namespace as RabbitMQ has words for, with no bridge behind it.

Names are those of the bridge's flavour, so that applications find the same exchanges and queues.
Every setting is in a policy, dead-lettering included, so that queues have no argument that could
not be changed later; such a policy is one entity's own.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from bridge.model import entity as model
from bridge.model.duration import is_forever
from bridge.topology import names, parts
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX, TTL_MAX_MS, Capabilities
from bridge.topology.compiler import joined, queue_settings, with_tier
from bridge.topology.policy import PREFIX, PRIORITY, Ceiling, ceiling_policies, escape
from bridge.topology.resources import Binding, Finding, Policy, Queue, Topology, Value
from bridge.topology.selection import selection


def compile_plain(
    namespace: model.Namespace,
    capabilities: Capabilities,
    *,
    priority: int = PRIORITY,
    ceiling: Ceiling | None = None,
) -> Topology:
    """Return the plain flavour of a namespace.

    Raises:
        EntityConflict: two entities would need resources of one name.
    """
    found = [_shared()]
    policies: list[Policy] = []
    targets = {queue.name.lower() for queue in namespace.queues}
    targets |= {topic.name.lower() for topic in namespace.topics}
    for queue in namespace.queues:
        found.append(_queue(queue, targets))
        policies.append(_policy(queue, None, priority))
    for topic in namespace.topics:
        found.append(
            Topology(exchanges=(parts.fixed_exchange(names.front(topic.name), "headers"),))
        )
        for subscription in topic.subscriptions:
            found.append(_subscription(subscription, capabilities, targets))
            policies.append(_policy(subscription, topic, priority))
    operator = ceiling_policies(with_tier(ceiling, namespace.tier), priority=priority)
    return replace(joined(found), policies=(*sorted(policies, key=lambda p: p.name), *operator))


def _shared() -> Topology:
    return Topology(
        exchanges=(parts.fixed_exchange(names.OTHER_DEATHS, "direct"),), queues=(parts.sink(),)
    )


def _queue(queue: model.Queue, targets: Container[str]) -> Topology:
    front = names.front(queue.name)
    own = Topology(
        exchanges=(parts.fixed_exchange(front, "fanout"),),
        queues=(_active(queue.name),),
        bindings=(Binding(source=front, destination=names.active_queue(queue.name)),),
    )
    return joined([_dead_letters(queue, targets), own])


def _subscription(
    subscription: model.Subscription, capabilities: Capabilities, targets: Container[str]
) -> Topology:
    """Its rules are bindings of the topic's headers exchange, where RabbitMQ can say them."""
    bindings: list[Binding] = []
    findings: list[Finding] = []
    for rule in subscription.rules:
        arguments, reason = selection(rule, capabilities)
        if arguments is not None:
            binding = Binding(
                source=names.front(subscription.topic),
                destination=names.active_queue(subscription.path),
                arguments=arguments,
            )
            bindings += [binding] if binding not in bindings else []
        if reason:
            finding = f"Rule {rule.name!r}: {reason}."
            findings.append(
                Finding(entity=subscription.path, property="Rules", grade="lost", message=finding)
            )
    own = Topology(
        queues=(_active(subscription.path),), bindings=tuple(bindings), findings=tuple(findings)
    )
    return joined([_dead_letters(subscription, targets), own])


def _active(entity: str) -> Queue:
    return Queue(
        name=names.active_queue(entity), arguments={"x-queue-type": "quorum", **parts.SCHEMA}
    )


def _dead_letters(entity: model.Queue | model.Subscription, targets: Container[str]) -> Topology:
    """As with the bridge; only the dead-letter queue waits for people, with RabbitMQ's timeouts.

    Dead letters that are forwarded go to their target at once, and to no queue before.
    """
    found = parts.dead_letters(entity)
    own = found.queues[0].name
    target = entity.forward_dead_lettered_messages_to.lower()
    if target in targets:
        bindings = (
            replace(binding, destination=names.front(target), to_exchange=True)
            if binding.destination == own
            else binding
            for binding in found.bindings
        )
        return replace(found, queues=(), bindings=tuple(bindings))
    arguments: dict[str, Value] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT_MAX,
        **parts.SCHEMA,
    }
    finding = Finding(
        entity=own.removesuffix("/$deadletterqueue"),
        property="ForwardDeadLetteredMessagesTo",
        grade="lost",
        message=f"The namespace has no {target!r}; dead letters stay in {own!r}.",
    )
    queue = Queue(name=own, arguments=arguments)
    return replace(found, queues=(queue,), findings=(finding,) if target else ())


def _policy(
    entity: model.Queue | model.Subscription, topic: model.Topic | None, priority: int
) -> Policy:
    path = entity.name if isinstance(entity, model.Queue) else entity.path
    definition = queue_settings(entity, topic)
    definition |= {
        "dead-letter-exchange": names.dead_letter_exchange(path),
        "dead-letter-routing-key": names.dead_letter_queue(path),
        "dead-letter-strategy": "at-least-once",
        "overflow": "reject-publish",
    }
    if not is_forever(entity.auto_delete_on_idle_ms):
        definition["expires"] = min(entity.auto_delete_on_idle_ms, TTL_MAX_MS)
    queue = names.active_queue(path)
    return Policy(
        name=PREFIX + queue,
        pattern=f"^{escape(queue)}$",
        definition={key: definition[key] for key in sorted(definition)},
        priority=priority,
    )
