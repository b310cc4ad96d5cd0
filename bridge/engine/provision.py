"""Makes RabbitMQ hold what a namespace compiles to: what is missing is made, nothing is taken away.

What is there is read through the management API, so that a start with a thousand entities that
exist already declares nothing. Several bridges may do this at once: every step can be repeated.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any

from bridge.broker.channel import Channel
from bridge.broker.errors import PreconditionFailed
from bridge.broker.management import Management
from bridge.broker.seal import seal, wait_s
from bridge.model import entity as model
from bridge.model.errors import EntityConflict
from bridge.topology import definitions
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import compile as compile_namespace
from bridge.topology.diff import Action, Change, diff
from bridge.topology.mixed import refusal
from bridge.topology.policy import PREFIX, PRIORITY, PROTECTED_PRIORITY
from bridge.topology.resources import (
    Binding,
    Exchange,
    Finding,
    Parameter,
    Policy,
    Queue,
    Topology,
)

_FIXED = {
    "requires_session": "RequiresSession",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
    "enable_partitioning": "EnablePartitioning",
}
"""What Service Bus fixes when an entity is created ("flag at create only")."""


def merged(existing: model.Namespace, wanted: model.Namespace) -> model.Namespace:
    """Return the entities of both; a wanted one replaces an existing one of its name.

    Shared access rules stay where no others are wanted: a `Config.json` has no place for them.

    Raises:
        EntityConflict: they differ in what cannot be changed.
    """
    found: dict[str, model.Entity] = {
        definitions.path_of(entity).lower(): entity for entity in definitions.entities(existing)
    }
    for entity in definitions.entities(wanted):
        path = definitions.path_of(entity)
        there = found.get(path.lower())
        if there is not None:
            _check_fixed(path, there, entity)
            if isinstance(entity, model.Queue | model.Topic) and not entity.authorization_rules:
                entity = replace(entity, authorization_rules=_rules_of(there))
        found[path.lower()] = entity
    return definitions.assemble(wanted, found.values())


def new_incarnation() -> str:
    """Return what tells an entity that is made now from others of its name."""
    return os.urandom(6).hex()


def _rules_of(entity: model.Entity) -> tuple[model.AuthorizationRule, ...]:
    return () if isinstance(entity, model.Subscription) else entity.authorization_rules


async def provision(
    namespace: model.Namespace,
    capabilities: Capabilities,
    management: Management,
    channel: Channel,
    *,
    with_definitions: bool = True,
) -> tuple[Finding, ...]:
    """Create and update; return what RabbitMQ cannot do as Service Bus does it.

    The definitions come last: who reads them finds the resources there, and they outlast a kill of
    RabbitMQ.

    Args:
        with_definitions: write them, too; otherwise they are there.

    Raises:
        EntityConflict: a resource is there with other unchangeable settings.
        BrokerError: RabbitMQ, or its management API, refuses something.
    """
    live = await _live(management)
    if said := refusal(live, management.vhost, wants_plain=False):
        raise EntityConflict(said)
    compiled = compile_namespace(namespace, capabilities, priority=_priority(live))
    parameters = definitions.parameters(namespace, management.vhost) if with_definitions else ()
    wanted = replace(compiled, parameters=parameters)
    changes = diff(wanted, live, keep=True)
    last = [change for change in changes if isinstance(change.resource, Parameter)]
    first = [change for change in changes if change not in last]
    for change in first:
        await _make(change, management, channel)
    if first:
        await seal(channel, os.urandom(8))
        await asyncio.sleep(wait_s((change.resource for change in first), live))
    for change in last:
        await _make(change, management, channel)
    return compiled.findings


def _priority(live: Topology) -> int:
    """Return the priority that `busbridge policies apply` has given our policies, if it has."""
    ours = (
        policy.priority
        for policy in live.policies
        if policy.name.startswith(PREFIX)
        and not policy.is_operator
        and policy.priority != PROTECTED_PRIORITY
    )
    return max(ours, default=PRIORITY)


async def _make(change: Change, management: Management, channel: Channel) -> None:
    resource = change.resource
    if change.action is Action.CONFLICT:
        raise EntityConflict(f"{_named(resource)} is there already, and {change.reason}.")
    is_delete = change.action is Action.DELETE
    try:
        match resource:
            case Exchange():
                await channel.declare_exchange(resource)
            case Queue():
                await channel.declare_queue(resource)
            case Binding() if is_delete:
                await channel.unbind_queue(
                    resource.destination,
                    resource.source,
                    resource.routing_key,
                    arguments=resource.arguments,
                )
            case Binding():
                await channel.bind(resource)
            case Policy() if is_delete:
                await management.delete_policy(resource.name, operator=resource.is_operator)
            case Policy():
                await management.put_policy(resource)
            case Parameter():
                await management.put_global_parameter(resource.name, resource.value)
    except PreconditionFailed as error:
        raise EntityConflict(f"{_named(resource)} is there already: {error.text}") from error


async def _live(management: Management) -> Topology:
    """Read what there is in the virtual host."""
    exchanges = await management.exchanges(("name", "type", "arguments"))
    queues = await management.queues(("name", "arguments"))
    bindings = await management.bindings()
    parameters = await management.global_parameters()
    return Topology(
        exchanges=tuple(
            Exchange(name=row["name"], type=row["type"], arguments=_arguments(row))
            for row in exchanges
        ),
        queues=tuple(Queue(name=row["name"], arguments=_arguments(row)) for row in queues),
        bindings=tuple(
            Binding(
                source=row["source"],
                destination=row["destination"],
                routing_key=row["routing_key"],
                to_exchange=row["destination_type"] == "exchange",
                arguments=_arguments(row),
            )
            for row in bindings
        ),
        policies=(
            *await management.policies(),
            *await management.policies(operator=True),
        ),
        parameters=tuple(Parameter(name=name, value=value) for name, value in parameters.items()),
    )


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    """RabbitMQ shows an empty object as an empty list in some places."""
    return row.get("arguments") or {}


def _named(resource: object) -> str:
    name = getattr(resource, "name", "") or getattr(resource, "source", "")
    return f"The {type(resource).__name__.lower()} {name!r} of RabbitMQ"


def _check_fixed(path: str, there: model.Entity, wanted: model.Entity) -> None:
    if type(there) is not type(wanted):
        raise EntityConflict(
            f"{path!r} is a {type(there).__name__.lower()} already, "
            f"not a {type(wanted).__name__.lower()}."
        )
    for field, name in _FIXED.items():
        before, after = getattr(there, field, None), getattr(wanted, field, None)
        if before != after:
            raise EntityConflict(
                f"{name} of {path!r} is {before} and cannot be changed to {after}: "
                "it is fixed when the entity is created."
            )
