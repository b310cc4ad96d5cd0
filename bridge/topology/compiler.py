"""The compiler: the entities of a namespace in, RabbitMQ resources, policies and findings out.

A property that never changes is an argument of the entity's resources. A property that Service Bus
lets a user change is in a policy, which all entities with equal settings share. The flavour decides
which resources an entity has. See docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from bridge.model import entity as model
from bridge.model.entities import receive_entities, send_entities
from bridge.model.errors import EntityConflict
from bridge.model.tiers import TIER_TIME_TO_LIVE_MAX_MS
from bridge.topology import names, parts
from bridge.topology.bridged import Bridged, shared
from bridge.topology.capabilities import Capabilities
from bridge.topology.flavour import Flavour
from bridge.topology.perils import key_of
from bridge.topology.policy import PRIORITY, Ceiling, ceiling_policies, protection
from bridge.topology.resources import (
    Exchange,
    Finding,
    Policy,
    Queue,
    Resource,
    Topology,
    Value,
)
from bridge.topology.sharing import NOTHING_THERE, Sharing, share

_BRIDGED = Bridged()


def compile(  # noqa: A001 - the compiler's one verb
    namespace: model.Namespace,
    capabilities: Capabilities,
    *,
    flavour: Flavour = _BRIDGED,
    priority: int = PRIORITY,
    ceiling: Ceiling | None = None,
    sharing: Sharing = NOTHING_THERE,
) -> Topology:
    """Return the topology of a namespace: its resources in an order that can be declared.

    Args:
        flavour: with the bridge, or RabbitMQ alone.
        priority: the priority of the policies.
        ceiling: limits that no entity may exceed; the tier's longest TTL always is one.
        sharing: the policies that are there already, and how entities share them.

    Raises:
        EntityConflict: two entities would need resources of one name.
    """
    topology = joined(flavour.pieces(namespace, capabilities))
    kinds = replace(topology, queues=(*topology.queues, *flavour.made_on_use(namespace)))
    limits = _with_tier(ceiling, namespace.tier)
    policies = _policies(flavour.settings(namespace), kinds, limits, priority, sharing)
    return replace(topology, policies=policies)


def compile_part(
    namespace: model.Namespace, changed: Iterable[model.Entity], capabilities: Capabilities
) -> Topology:
    """Return the resources of some entities of a namespace with the bridge, and the shared ones.

    There are no policies among them, since entities share them (`compile_policies`).

    Args:
        changed: the entities. A topic comes without its subscriptions, and a subscription with its
            topic.

    Raises:
        EntityConflict: see `compile`.
    """
    paths = {entity.path.lower() for entity in changed}
    topics = tuple(
        replace(topic, subscriptions=subscriptions)
        for topic in namespace.topics
        for subscriptions in (
            tuple(each for each in topic.subscriptions if each.path.lower() in paths),
        )
        if subscriptions or topic.path.lower() in paths
    )
    queues = tuple(queue for queue in namespace.queues if queue.path.lower() in paths)
    part = replace(namespace, queues=queues, topics=topics)
    return joined(_BRIDGED.pieces(part, capabilities))


def compile_policies(
    namespace: model.Namespace, *, priority: int = PRIORITY, sharing: Sharing = NOTHING_THERE
) -> tuple[tuple[Policy, ...], Mapping[str, Mapping[str, Value]]]:
    """Return the policies of a namespace with the bridge, and the settings of its active queues."""
    settings = _BRIDGED.settings(namespace)
    kinds = Topology(queues=(*shared().queues, *_kinds(namespace)))
    limits = _with_tier(None, namespace.tier)
    return _policies(settings, kinds, limits, priority, sharing), settings


def _kinds(namespace: model.Namespace) -> Iterator[Queue]:
    """Yield one queue of each kind of which a policy protects all."""
    sent = list(send_entities(namespace))
    for entity in sent[:1]:
        yield parts.journal(entity.path)
        yield parts.moved(entity.path)
    for each in islice(receive_entities(namespace), 1):
        yield parts.quorum_queue(names.dead_letter_queue(each.path), {})
    yield from _BRIDGED.made_on_use(namespace)


def _policies(
    settings: Mapping[str, Mapping[str, Value]],
    topology: Topology,
    limits: Ceiling,
    priority: int,
    sharing: Sharing,
) -> tuple[Policy, ...]:
    return (
        *share(settings, sharing, priority=priority),
        *protection(topology.queues),
        *ceiling_policies(limits, priority=priority),
    )


def _with_tier(ceiling: Ceiling | None, tier: model.Tier) -> Ceiling:
    """Return a ceiling whose TTL is no longer than the tier's longest."""
    ceiling = ceiling or Ceiling()
    longest_ms = TIER_TIME_TO_LIVE_MAX_MS[tier]
    if ceiling.time_to_live_ms is not None:
        longest_ms = min(longest_ms, ceiling.time_to_live_ms)
    return replace(ceiling, time_to_live_ms=longest_ms)


def joined(pieces: Iterable[Topology]) -> Topology:
    """Return one topology of all pieces, with the resources of the first piece first.

    Raises:
        EntityConflict: two pieces have a queue or an exchange of the same name.
    """
    found: dict[tuple[object, ...], Resource] = {}
    findings: list[Finding] = []
    for part in pieces:
        findings += part.findings
        for each in part.resources:
            is_new = found.setdefault(key_of(each), each) is each
            if not is_new and isinstance(each, Exchange | Queue):
                kind = type(each).__name__.lower()
                raise EntityConflict(f"Two entities need the RabbitMQ {kind} {each.name!r}.")
    return replace(Topology.of(found.values()), findings=tuple(findings))
