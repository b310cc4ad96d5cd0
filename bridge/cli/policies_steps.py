"""Making the changes of a plan in a broker, so that they outlast a kill of RabbitMQ."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from itertools import chain

from bridge.broker import seal
from bridge.broker.errors import BrokerError
from bridge.broker.live import CommandFailed, LiveBroker
from bridge.cli.terminal import progress
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
"""Objects in one import: each is one request, and a bar that stands still says nothing."""

_NO_SHOVELS = (
    "\nWhat forwards needs RabbitMQ's plugin: run 'rabbitmq-plugins enable rabbitmq_shovel' on "
    "each node, then apply again. All before it is done."
)

Step = Change | Topology
"""A change, or new objects that are declared in one import."""


async def carry_out(
    broker: LiveBroker, changes: Sequence[Change], there: Topology, vhost: str
) -> None:
    """Make the changes; what was declared or deleted outlasts a kill of RabbitMQ then.

    And it does before the definitions are written, which come behind all that is declared: who
    reads them may use it.
    """
    kinds = [type(change.resource) for change in changes]
    split = kinds.index(Parameter) if Parameter in kinds else len(kinds)
    parts = changes[:split], changes[split:]
    steps = [list(_steps(part)) for part in parts]
    shown = progress(chain(*steps), sum(map(len, steps)), "Applying")
    for part, own in zip(parts, steps, strict=True):
        for _ in own:
            await _take(broker, next(shown), vhost)
        made = [change.resource for change in part]
        if any(isinstance(each, Exchange | Queue | Binding) for each in made):
            await _seal(broker, vhost)
            await asyncio.sleep(seal.wait_s(made, there))
    next(shown, None)


def _steps(changes: Sequence[Change]) -> Iterator[Step]:
    """Yield the changes one after another; new objects in a row are one step."""
    together: list[Exchange | Queue | Binding] = []
    for change in changes:
        resource = change.resource
        is_new = change.action is Action.CREATE and isinstance(resource, Exchange | Queue | Binding)
        if together and (not is_new or len(together) >= _IMPORTED_MAX):
            yield _topology(together)
            together = []
        if is_new and isinstance(resource, Exchange | Queue | Binding):
            together.append(resource)
        else:
            yield change
    if together:
        yield _topology(together)


def _topology(resources: Sequence[Exchange | Queue | Binding]) -> Topology:
    return Topology(
        exchanges=tuple(each for each in resources if isinstance(each, Exchange)),
        queues=tuple(each for each in resources if isinstance(each, Queue)),
        bindings=tuple(each for each in resources if isinstance(each, Binding)),
    )


async def _take(broker: LiveBroker, step: Step, vhost: str) -> None:
    if isinstance(step, Topology):
        await broker.import_definitions(document(step, vhost))
        return
    try:
        await _make(broker, step, vhost)
    except BrokerError as error:
        remedy = _NO_SHOVELS if "component shovel not found" in str(error) else ""
        raise CommandFailed(text=f"{title(step.resource)}: {error}{remedy}") from error


async def _make(broker: LiveBroker, change: Change, vhost: str) -> None:
    is_deleted = change.action is Action.DELETE
    match change.resource:
        case Policy() as policy if is_deleted:
            await broker.delete_policy(policy.name, operator=policy.is_operator)
        case Policy() as policy:
            await broker.put_policy(policy)
        case Shovel() as shovel if is_deleted:
            await broker.delete_shovel(shovel.name)
        case Shovel() as shovel:
            await broker.import_definitions(document(Topology(shovels=(shovel,)), vhost))
        case Parameter() as parameter if is_deleted:
            await broker.delete_global_parameter(parameter.name)
        case Parameter() as parameter:
            await broker.put_global_parameter(parameter.name, parameter.value)
        case Binding() as binding:
            await broker.delete_binding(binding)
        case Exchange() as exchange:
            await broker.delete_exchange(exchange.name)
        case Queue() as queue:
            await broker.delete_queue(queue.name)


async def _seal(broker: LiveBroker, vhost: str) -> None:
    """Make the changes that have those before them last."""
    queue = seal.queue(os.urandom(8))
    both = Topology(queues=(queue,), exchanges=(seal.EXCHANGE,))
    await broker.import_definitions(document(both, vhost))
    await broker.delete_queue(queue.name)
    await broker.delete_exchange(seal.EXCHANGE.name)
