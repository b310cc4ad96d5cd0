"""Makes the RabbitMQ objects that entities compile to; queues, exchanges and messages are kept.

`provision` is for the start. It reads all existing objects by the management API, so a thousand
existing entities cost no declaration. `provide` is for changed entities. It declares all their
objects, and lists only policies and a few bindings. Several bridges may run both at once: every
step can be repeated.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from bridge.broker.connection.channel import Channel
from bridge.broker.declaration_fence import fence_declarations, is_stream, wait_s
from bridge.broker.management.api import Management
from bridge.engine.administration.bulk_declaration import (
    BulkDeclaration,
    OnProgress,
    at_once,
    declare,
    name_of,
    named,
)
from bridge.engine.administration.live_resources import binding_of
from bridge.engine.administration.policies import Policies, put_policy
from bridge.model import entity as model
from bridge.model.errors import EntityConflict
from bridge.model.properties import CREATE_ONLY
from bridge.topology import definitions
from bridge.topology.bridged import shared
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.compiler import compile_part
from bridge.topology.definitions import bare
from bridge.topology.diff import Action, Change, diff
from bridge.topology.mixed import refusal
from bridge.topology.names import base_of, resource_base
from bridge.topology.parts import journal
from bridge.topology.resources import (
    Binding,
    Exchange,
    Finding,
    Parameter,
    Policy,
    Queue,
    Topology,
)
from bridge.topology.sharing import Sharing, others, priority_of

WRITTEN_AT_ONCE = 4
"""Definitions that a start writes at once, each by a request to the management API."""


def merged(existing: model.Namespace, wanted: model.Namespace) -> model.Namespace:
    """Return the entities of both; a wanted one replaces an existing one of its name.

    A wanted entity without shared access rules keeps the existing ones: a `Config.json` cannot name
    any.

    Raises:
        EntityConflict: a wanted entity differs in a property that is fixed at creation.
    """
    found: dict[str, model.Entity] = {
        entity.path.lower(): entity for entity in definitions.entities(existing)
    }
    for entity in definitions.entities(wanted):
        path = entity.path
        there = found.get(path.lower())
        if there is not None:
            check_fixed(path, there, entity)
            if isinstance(entity, model.Queue | model.Topic) and not entity.authorization_rules:
                entity = replace(entity, authorization_rules=_rules_of(there))
        found[path.lower()] = entity
    return definitions.assemble(wanted, found.values())


def new_incarnation() -> str:
    """Return a random incarnation for a new entity."""
    return os.urandom(6).hex()


def _rules_of(entity: model.Entity) -> tuple[model.AuthorizationRule, ...]:
    return () if isinstance(entity, model.Subscription) else entity.authorization_rules


async def provision(
    namespace: model.Namespace,
    there: model.Namespace,
    live: Topology,
    capabilities: Capabilities,
    management: Management,
    open_channel: Callable[[], Awaitable[Channel]],
    on_made: OnProgress = lambda made, count: None,
    *,
    owns_vhost: bool = False,
) -> tuple[Finding, ...]:
    """Create and update entities; return the findings: features that RabbitMQ lacks.

    Definitions are written last: a reader of a definition finds its resources, and they outlast a
    kill of RabbitMQ. Only changed definitions are written: a definition that another bridge has
    changed or deleted since `there` was read stays as that bridge left it.

    Args:
        there: the definitions, read after `live`: an entity that is deleted between both reads is
            not among them, and one that is deleted later has all its resources in `live`.
        live: the existing objects of the virtual host (`read_live`).
        open_channel: opens a channel, each time on another connection; the caller closes them.
        on_made: called with the numbers of RabbitMQ objects that are made, and of all to be made.
        owns_vhost: see `Policies`.

    Raises:
        EntityConflict: a resource exists with other unchangeable settings. Its entity's definition
            is not written; all other entities are made.
        BrokerError: RabbitMQ, or its management API, refuses something.
    """
    if said := refusal(live, management.vhost, wants_plain=False):
        raise EntityConflict(said)
    steps = await asyncio.to_thread(
        _Steps, namespace, there, live, capabilities, management.vhost, owns_vhost=owns_vhost
    )
    for change in steps.policies:
        await _put(change, management)
    if steps.declarations.count:
        channels = [await open_channel() for _ in range(steps.declarations.channels)]
        await steps.declarations.run(channels, on_made)
        await fence_declarations(channels[0], os.urandom(8))
        await asyncio.sleep(steps.wait_s)
    for change in steps.old_policies:
        await _put(change, management)
    await _write_all(steps.definitions, management)
    if steps.conflicts:
        raise EntityConflict(" ".join(_conflict(change) for change in steps.conflicts))
    return steps.findings


class _Steps:
    """What a start has to do: computed in a thread, as it takes a second for 1,000 entities."""

    def __init__(
        self,
        namespace: model.Namespace,
        there: model.Namespace,
        live: Topology,
        capabilities: Capabilities,
        vhost: str,
        *,
        owns_vhost: bool,
    ) -> None:
        compiled = compile_namespace(
            definitions.standing(namespace),
            capabilities,
            priority=priority_of(live.policies),
            sharing=Sharing(
                live=live.policies,
                keeps=lambda name: True,
                is_own=owns_vhost,
                others=others(live),
            ),
        )
        self.findings = compiled.findings
        wanted = replace(compiled, parameters=definitions.parameters(namespace, vhost))
        changes = diff(wanted, live, keep=True)
        self.conflicts = [each for each in changes if each.action is Action.CONFLICT]
        steps = [each for each in changes if each.action is not Action.CONFLICT]
        policies = [each for each in steps if isinstance(each.resource, Policy)]
        self.policies = [each for each in policies if each.action is not Action.DELETE]
        self.old_policies = [each for each in policies if each.action is Action.DELETE]
        first = [each for each in steps if not isinstance(each.resource, Policy | Parameter)]
        self.declarations = BulkDeclaration(first)
        self.wait_s = wait_s((each.resource for each in first), live)
        written = {
            definitions.namespace_parameter_name(vhost),
            *(definitions.parameter_name(vhost, e.path) for e in changed(there, namespace)),
        } - _parameters_of(self.conflicts, namespace, vhost)
        self.definitions = [
            each.resource
            for each in steps
            if isinstance(each.resource, Parameter) and each.resource.name in written
        ]


async def _write_all(parameters: Iterable[Parameter], management: Management) -> None:
    """Write definitions, `WRITTEN_AT_ONCE` at once."""
    rest = iter(parameters)

    async def write() -> None:
        for each in rest:
            await management.put_global_parameter(each.name, each.value)

    await at_once(write() for _ in range(WRITTEN_AT_ONCE))


async def provide(
    part: model.Namespace,
    made: model.Entity,
    another: model.SendEntity | None,
    capabilities: Capabilities,
    policies: Policies,
    management: Management,
    channel: Channel,
) -> tuple[Finding, ...]:
    """Make the resources of one entity; return the findings: features that RabbitMQ lacks.

    Only the policies, and the bindings of dead-letter exchanges, are listed. The policies come
    first, so that a new queue has its policy from the start.

    Args:
        part: a namespace of the entity alone, of a subscription with its topic.
        made: the entity, which is new or changed.
        another: any queue or topic that existed before.
        policies: has `made` in `making`.
        channel: any channel; a conflict closes it.

    Raises:
        EntityConflict: a resource exists with other unchangeable settings.
        BrokerError: RabbitMQ, or its management API, refuses something.
    """
    topology = compile_part(part, (made,), capabilities)
    await policies.put()
    there = await _stream_there(topology, another, management)
    resources: list[Exchange | Queue] = [*topology.exchanges, *topology.queues]
    for resource in resources:
        await declare(Change(action=Action.CREATE, resource=resource), channel)
    for change in diff(
        topology, replace(topology, bindings=await _bindings(topology, management)), keep=True
    ):
        await declare(change, channel)
    await fence_declarations(channel, os.urandom(8))
    await asyncio.sleep(wait_s(topology.queues, there))
    return topology.findings


async def provide_shared(channel: Channel) -> None:
    """Make the resources that all entities share."""
    topology = shared()
    for exchange in topology.exchanges:
        await channel.declarations.declare_exchange(exchange)
    for queue in topology.queues:
        await channel.declarations.declare_queue(queue)
    await fence_declarations(channel, os.urandom(8))


async def _stream_there(
    topology: Topology, another: model.SendEntity | None, management: Management
) -> Topology:
    """Return a topology with one stream that existed before this change, or an empty one."""
    if another is not None:
        return Topology(queues=(journal(another.path),))
    for queue in topology.queues:
        if is_stream(queue) and await management.queue(queue.name) is not None:
            return Topology(queues=(queue,))
    return Topology()


def changed(before: model.Namespace, after: model.Namespace) -> list[model.Entity]:
    """Return the entities that are new or changed; a topic and its subscriptions count singly.

    Entities that are being deleted are left out.
    """
    known = {each.path.lower(): bare(each) for each in definitions.entities(before)}
    return [
        each
        for each in definitions.entities(definitions.standing(after))
        if known.get(each.path.lower()) != bare(each)
    ]


async def _bindings(topology: Topology, management: Management) -> tuple[Binding, ...]:
    """Read the bindings of headers exchanges: one of them may have to be removed."""
    found = []
    for exchange in topology.exchanges:
        if exchange.type == "headers":
            found += [binding_of(row) for row in await management.bindings_from(exchange.name)]
    return tuple(found)


def _parameters_of(
    conflicts: Iterable[Change], namespace: model.Namespace, vhost: str
) -> frozenset[str]:
    """Return the names of the definitions of entities with a conflicting resource."""
    owners = {base_of(name_of(change.resource)) for change in conflicts}
    return frozenset(
        definitions.parameter_name(vhost, entity.path)
        for entity in definitions.entities(namespace)
        if resource_base(entity.path) in owners
    )


def _conflict(change: Change) -> str:
    return f"{named(change.resource)} is there already, and {change.reason}."


async def _put(change: Change, management: Management) -> None:
    assert isinstance(change.resource, Policy)
    await put_policy(change, change.resource, management)


def check_fixed(path: str, there: model.Entity, wanted: model.Entity) -> None:
    """Refuse a change of a property that is fixed when an entity is created.

    Raises:
        EntityConflict: such a property differs, or the entity is of another kind.
    """
    if type(there) is not type(wanted):
        raise EntityConflict(
            f"{path!r} is a {type(there).__name__.lower()} already, "
            f"not a {type(wanted).__name__.lower()}."
        )
    for field, name in CREATE_ONLY.items():
        before, after = getattr(there, field, None), getattr(wanted, field, None)
        if before != after:
            raise EntityConflict(
                f"{name} of {path!r} is {before} and cannot be changed to {after}: "
                "it is fixed when the entity is created."
            )
