"""Execution of a plan's changes in a broker; they survive a kill of RabbitMQ."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from itertools import groupby

from bridge.broker import declaration_fence
from bridge.broker.errors import BrokerError
from bridge.broker.management.live import CommandFailed, LiveBroker
from bridge.commands.terminal import ProgressBar
from bridge.topology.diff import Action, Change
from bridge.topology.resources import (
    Binding,
    Exchange,
    Parameter,
    Policy,
    Queue,
    Shovel,
    Topology,
)
from policies.plan_text import title
from policies.writers.definitions import document

_IMPORTED_MAX = 200
"""Objects in one import: each import is one request, and the bar stands still meanwhile."""

_NO_SHOVELS = (
    "\nWhat forwards needs RabbitMQ's plugin: run 'rabbitmq-plugins enable rabbitmq_shovel' on "
    "each node, then apply again. All before it is done."
)

Step = Change | tuple[Change, ...]
"""A change, or the changes of one import: a call of `rabbitmqctl` takes a second and more."""


async def carry_out(
    broker: LiveBroker, changes: Sequence[Change], there: Topology, vhost: str, bar: ProgressBar
) -> None:
    """Make the changes; afterwards declarations and deletions survive a kill of RabbitMQ.

    Declared objects are fenced before the definitions are written, which come last: a process that
    reads a definition may use its objects.

    Args:
        bar: shows each change that is made.
    """
    kinds = [type(change.resource) for change in changes]
    split = kinds.index(Parameter) if Parameter in kinds else len(kinds)
    for part in (changes[:split], changes[split:]):
        for step in _steps(part):
            bar.doing(_doing(step))
            await _take(broker, step, vhost)
            bar.advance(len(step) if isinstance(step, tuple) else 1)
        made = [change.resource for change in part]
        if any(isinstance(each, Exchange | Queue | Binding) for each in made):
            bar.doing("waiting for RabbitMQ's disk")
            await _fence(broker, vhost)
            await asyncio.sleep(declaration_fence.wait_s(made, there))
    bar.doing("")


def _doing(step: Step) -> str:
    if isinstance(step, tuple):
        return f"{len(step):,} {_import_of(step[0])} at once"
    return title(step.resource)


def _steps(changes: Sequence[Change]) -> Iterator[Step]:
    """Yield the changes in order; consecutive importable changes are one step."""
    for kind, group in groupby(changes, key=_import_of):
        same = list(group)
        if kind:
            for at in range(0, len(same), _IMPORTED_MAX):
                yield tuple(same[at : at + _IMPORTED_MAX])
        else:
            yield from same


def _import_of(change: Change) -> str:
    """Return the kind of import for a change, in the order of the changes; "" if it has none.

    RabbitMQ imports policies one after another, in the order of the file; operator policies are
    parameters to RabbitMQ, and come later.
    """
    match change.resource:
        case Exchange() | Queue() | Binding() if change.action is Action.CREATE:
            return "objects"
        case Policy() as policy if change.action is not Action.DELETE:
            return "operator policies" if policy.is_operator else "policies"
        case Parameter() if change.action is not Action.DELETE:
            return "parameters"
    return ""


async def _take(broker: LiveBroker, step: Step, vhost: str) -> None:
    if isinstance(step, tuple):
        await _import(broker, Topology.of(change.resource for change in step), vhost)
        return
    try:
        await _make(broker, step, vhost)
    except BrokerError as error:
        remedy = _NO_SHOVELS if "component shovel not found" in str(error) else ""
        raise CommandFailed(text=f"{title(step.resource)}: {error}{remedy}") from error


async def _import(broker: LiveBroker, topology: Topology, vhost: str) -> None:
    """Import a topology without the virtual host, which exists as its owner has described it."""
    await broker.import_definitions(document(topology, vhost))


async def _make(broker: LiveBroker, change: Change, vhost: str) -> None:
    is_deleted = change.action is Action.DELETE
    match change.resource:
        case Policy() as policy if is_deleted:
            await broker.delete_policy(policy.name, operator=policy.is_operator)
        case Shovel() as shovel if is_deleted:
            await broker.delete_shovel(shovel.name)
        case Shovel() as shovel:
            await _import(broker, Topology(shovels=(shovel,)), vhost)
        case Parameter() as parameter if is_deleted:
            await broker.delete_global_parameter(parameter.name)
        case Binding() as binding:
            await broker.delete_binding(binding)
        case Exchange() as exchange:
            await broker.delete_exchange(exchange.name)
        case Queue() as queue:
            await broker.delete_queue(queue.name)


async def _fence(broker: LiveBroker, vhost: str) -> None:
    """Make the fence's changes, which cause RabbitMQ to write all earlier changes to disk."""
    queue = declaration_fence.queue(os.urandom(8))
    both = Topology(queues=(queue,), exchanges=(declaration_fence.EXCHANGE,))
    await _import(broker, both, vhost)
    await broker.delete_queue(queue.name)
    await broker.delete_exchange(declaration_fence.EXCHANGE.name)
