"""Makes the RabbitMQ objects that entities compile to; queues, exchanges and messages are kept.

`provision` is for the start. It reads all existing objects by the management API, so a thousand
existing entities cost no declaration. `provide` is for changed entities. It declares all their
objects, and lists only policies and a few bindings. Several bridges may run both at once: every
step can be repeated.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

from bridge.broker.connection.channel import Channel
from bridge.broker.declaration_fence import fence_declarations, is_stream, wait_s
from bridge.broker.errors import PreconditionFailed
from bridge.broker.management.api import Management
from bridge.engine.administration.policies import Policies, put_policy
from bridge.model import entity as model
from bridge.model.errors import EntityConflict
from bridge.model.properties import CREATE_ONLY
from bridge.topology import definitions
from bridge.topology.bridged import shared
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.compiler import compile_part
from bridge.topology.diff import Action, Change, diff
from bridge.topology.mixed import refusal
from bridge.topology.names import front_path, resource_base
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
    channel: Channel,
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
        owns_vhost: see `Policies`.

    Raises:
        EntityConflict: a resource exists with other unchangeable settings. Its entity's definition
            is not written; all other entities are made.
        BrokerError: RabbitMQ, or its management API, refuses something.
    """
    if said := refusal(live, management.vhost, wants_plain=False):
        raise EntityConflict(said)
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
    parameters = definitions.parameters(namespace, management.vhost)
    wanted = replace(compiled, parameters=parameters)
    changes = diff(wanted, live, keep=True)
    conflicts = [change for change in changes if change.action is Action.CONFLICT]
    written = {
        definitions.namespace_parameter_name(management.vhost),
        *(definitions.parameter_name(management.vhost, e.path) for e in changed(there, namespace)),
    } - _parameters_of(conflicts, namespace, management.vhost)
    last = [change for change in changes if isinstance(change.resource, Parameter)]
    first = [change for change in changes if change not in (*last, *conflicts)]
    for change in first:
        await _make(change, management, channel)
    if first:
        await fence_declarations(channel, os.urandom(8))
        await asyncio.sleep(wait_s((change.resource for change in first), live))
    for change in last:
        if _name_of(change.resource) in written:
            await _make(change, management, channel)
    if conflicts:
        raise EntityConflict(" ".join(_conflict(change) for change in conflicts))
    return compiled.findings


async def provide(
    changed: Sequence[model.Entity],
    namespace: model.Namespace,
    capabilities: Capabilities,
    policies: Policies,
    management: Management,
    channel: Channel,
) -> tuple[Finding, ...]:
    """Make the resources of some entities; return the findings: features that RabbitMQ lacks.

    Only the policies, and the bindings of dead-letter exchanges, are listed. The policies come
    first, so that a new queue has its policy from the start.

    Args:
        changed: entities of `namespace` that are new or changed.
        policies: has `changed` in `making`.
        channel: any channel; a conflict closes it.

    Raises:
        EntityConflict: a resource exists with other unchangeable settings.
        BrokerError: RabbitMQ, or its management API, refuses something.
    """
    topology = compile_part(namespace, changed, capabilities)
    await policies.put()
    there = await _stream_there(topology, changed, namespace, management)
    resources: list[Exchange | Queue] = [*topology.exchanges, *topology.queues]
    for resource in resources:
        await _make(Change(action=Action.CREATE, resource=resource), management, channel)
    for change in diff(
        topology, replace(topology, bindings=await _bindings(topology, management)), keep=True
    ):
        await _make(change, management, channel)
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
    topology: Topology,
    changed: Sequence[model.Entity],
    namespace: model.Namespace,
    management: Management,
) -> Topology:
    """Return a topology with one stream that existed before this change, or an empty one."""
    new = {entity.path.lower() for entity in changed}
    for each in model.send_entities(namespace):
        if each.path.lower() not in new:
            return Topology(queues=(journal(each.path),))
    for queue in topology.queues:
        if is_stream(queue) and await management.queue(queue.name) is not None:
            return Topology(queues=(queue,))
    return Topology()


def changed(
    before: model.Namespace, after: model.Namespace, incomplete: Container[str] = ()
) -> list[model.Entity]:
    """Return the entities that are new or changed; a topic and its subscriptions count singly.

    Entities that are being deleted are left out.

    Args:
        incomplete: paths (lower case) of entities that lack a resource. Subscriptions of such a
            topic count as changed, too.
    """
    known = {each.path.lower(): _bare(each) for each in definitions.entities(before)}
    return [
        each
        for each in definitions.entities(definitions.standing(after))
        if each.path.lower() in incomplete
        or front_path(each.path).lower() in incomplete
        or known.get(each.path.lower()) != _bare(each)
    ]


def _bare(entity: model.Entity) -> model.Entity:
    return replace(entity, subscriptions=()) if isinstance(entity, model.Topic) else entity


async def _bindings(topology: Topology, management: Management) -> tuple[Binding, ...]:
    """Read the bindings of headers exchanges: one of them may have to be removed."""
    found = []
    for exchange in topology.exchanges:
        if exchange.type == "headers":
            found += [_binding(row) for row in await management.bindings_from(exchange.name)]
    return tuple(found)


def _parameters_of(
    conflicts: Iterable[Change], namespace: model.Namespace, vhost: str
) -> frozenset[str]:
    """Return the names of the definitions of entities with a conflicting resource."""
    names = [_name_of(change.resource) for change in conflicts]
    return frozenset(
        definitions.parameter_name(vhost, entity.path)
        for entity in definitions.entities(namespace)
        for base in (resource_base(entity.path),)
        if any(name == base or name.startswith(base + "/$") for name in names)
    )


def _conflict(change: Change) -> str:
    return f"{_named(change.resource)} is there already, and {change.reason}."


async def _make(change: Change, management: Management, channel: Channel) -> None:
    resource = change.resource
    is_delete = change.action is Action.DELETE
    try:
        match resource:
            case Exchange():
                await channel.declarations.declare_exchange(resource)
            case Queue():
                await channel.declarations.declare_queue(resource)
            case Binding() if is_delete:
                await channel.declarations.unbind_queue(
                    resource.destination,
                    resource.source,
                    resource.routing_key,
                    arguments=resource.arguments,
                )
            case Binding():
                await channel.declarations.bind(resource)
            case Policy():
                await put_policy(change, resource, management)
            case Parameter():
                await management.put_global_parameter(resource.name, resource.value)
    except PreconditionFailed as error:
        raise EntityConflict(f"{_named(resource)} is there already: {error.text}") from error


async def read_live(management: Management) -> Topology:
    """Read the exchanges, queues, bindings, policies and global parameters by management API."""
    resources = await read_resources(management)
    parameters = await management.global_parameters()
    return replace(
        resources,
        policies=(
            *await management.policies(),
            *await management.policies(operator=True),
        ),
        parameters=tuple(Parameter(name=name, value=value) for name, value in parameters.items()),
    )


async def read_resources(management: Management) -> Topology:
    """Read the exchanges, queues and bindings by management API."""
    exchanges = await management.exchanges(("name", "type", "arguments"))
    queues = await management.queues(("name", "arguments"))
    bindings = await management.bindings()
    return Topology(
        exchanges=tuple(
            Exchange(name=row["name"], type=row["type"], arguments=_arguments(row))
            for row in exchanges
        ),
        queues=tuple(Queue(name=row["name"], arguments=_arguments(row)) for row in queues),
        bindings=tuple(map(_binding, bindings)),
    )


def _binding(row: dict[str, Any]) -> Binding:
    return Binding(
        source=row["source"],
        destination=row["destination"],
        routing_key=row["routing_key"],
        to_exchange=row["destination_type"] == "exchange",
        arguments=_arguments(row),
    )


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    """Return an object's arguments; the API shows an empty object as an empty list in places."""
    return row.get("arguments") or {}


def _named(resource: object) -> str:
    return f"The {type(resource).__name__.lower()} {_name_of(resource)!r} of RabbitMQ"


def _name_of(resource: object) -> str:
    return str(getattr(resource, "name", "") or getattr(resource, "source", ""))


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
