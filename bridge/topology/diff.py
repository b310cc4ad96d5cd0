"""What has to change in a live broker so that it is as wanted. Pure: two values in, changes out.

Only what is marked as ours is ever deleted: queues and exchanges with the schema argument, bindings
between two such, policies and global parameters with our prefix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from bridge.topology import definitions, policy
from bridge.topology.fate import (
    Peril,
    Resource,
    carried_out,
    key_of,
    perils,
    touches,
)
from bridge.topology.parts import SCHEMA_ARGUMENT
from bridge.topology.policy import RAISED_PREFIX
from bridge.topology.resources import (
    Binding,
    Exchange,
    Parameter,
    Policy,
    Queue,
    Shovel,
    Topology,
    Value,
)
from bridge.topology.rollout import Step, rollout


class Action(Enum):
    """What happens to a resource."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One step; the steps of a diff are made one after another.

    Attributes:
        resource: as it shall be, or what is deleted.
        live: as it is; `None` when it is not there.
        reason: why it cannot be done (`CONFLICT`), or what it takes with it (destructive steps).
        stakes: the queues whose messages can become fewer by it.
        is_destructive: messages can be lost by it.
    """

    action: Action
    resource: Resource
    live: Resource | None = None
    reason: str = ""
    stakes: tuple[str, ...] = ()
    is_destructive: bool = False


_COMES_AND_GOES = re.compile(r"(?P<entity>.+?)/\$(?:deferred|(?:scheduled|holder)/.*)")
"""Queues that the bridge makes while it runs; the compiler does not know them."""

_SHARED_PREFIX = "$sb/"


def diff(wanted: Topology, live: Topology, *, keep: bool = False) -> tuple[Change, ...]:
    """Return the changes from `live` to `wanted`, in an order that loses no message on the way.

    Policies come first, so that a new queue has its own from the start; then everything new, then
    what goes. For a queue or exchange that is there with other unchangeable properties there is a
    conflict, first of all, and no step.

    Args:
        keep: leave alone what is not wanted, but for a binding that a wanted one replaces.
    """
    declared = _declared(wanted, live)
    policies = _policies(wanted, live, keep=keep)
    changes = [change for change in declared if change.action is Action.CONFLICT]
    changes += [change for change in policies if change.action is not Action.DELETE]
    changes += [change for change in declared if change.action is not Action.CONFLICT]
    changes += _shovels(wanted, live, keep=keep)
    changes += _parameters(wanted, live)
    changes += [change for change in policies if change.action is Action.DELETE]
    if keep:
        changes += _replaced(wanted, live)
    else:
        kept = {queue.name for queue in wanted.queues}
        changes += _stale(wanted, live, lambda name: _is_running(name, kept))
    return tuple(changes)


def marked(changes: Sequence[Change], live: Topology) -> tuple[Change, ...]:
    """Return the changes with each one marked by which messages can be lost, and why.

    Whoever made the queue, and whatever ruled it before.
    """
    steps = [each for each in changes if each.action is not Action.CONFLICT]
    gone = [each.resource for each in steps if each.action is Action.DELETE]
    put = [each.resource for each in steps if each.action is not Action.DELETE]
    after = carried_out(live, gone, [each for each in put if key_of(each) not in _keys(gone)])
    found: dict[int, list[Peril]] = {}
    for peril in perils(live, after):
        found.setdefault(_cause(changes, peril), []).append(peril)
    return tuple(
        replace(
            change,
            is_destructive=True,
            stakes=tuple(dict.fromkeys(peril.queue for peril in found[number])),
            reason="; ".join(dict.fromkeys(peril.reason for peril in found[number])),
        )
        if number in found
        else change
        for number, change in enumerate(changes)
    )


def _keys(resources: Iterable[Resource]) -> set[tuple[object, ...]]:
    return {key_of(each) for each in resources}


def _cause(changes: Sequence[Change], peril: Peril) -> int:
    """Return the number of the change that endangers a queue: what takes it last, or lets it go."""
    able = [
        number
        for number, change in enumerate(changes)
        for each in (change.resource, change.live)
        if each is not None and touches(each, peril.queue, peril.exchanges)
    ]
    lasting = [number for number in able if changes[number].action is not Action.DELETE]
    return (lasting or able or [len(changes) - 1])[-1]


def removal(live: Topology) -> tuple[Change, ...]:
    """Return the changes that take away all that is ours, messages included."""
    nothing = Topology()
    changes = [
        *_shovels(nothing, live, keep=False),
        *_stale(nothing, live, lambda name: False),
        *_policies(nothing, live, keep=False),
    ]
    return marked(changes, live)


def is_owned(resource: Resource) -> bool:
    """Whether a queue, exchange, policy or parameter carries our mark; a binding has none."""
    match resource:
        case Exchange() | Queue():
            return SCHEMA_ARGUMENT in resource.arguments
        case Policy() | Shovel():
            return resource.name.startswith(policy.PREFIX)
        case Parameter():
            return resource.name.startswith((definitions.PREFIX, definitions.NAMESPACE_PREFIX))
        case Binding():
            return False
        case _:
            assert_never(resource)


def _declared(wanted: Topology, live: Topology) -> list[Change]:
    changes: list[Change] = []
    exchanges = {exchange.name: exchange for exchange in live.exchanges}
    for exchange in wanted.exchanges:
        there = exchanges.get(exchange.name)
        reason = "" if there is None else _exchange_conflict(exchange, there)
        changes += _declaration(exchange, there, reason)
    queues = {queue.name: queue for queue in live.queues}
    for queue in wanted.queues:
        found = queues.get(queue.name)
        reason = "" if found is None else _queue_conflict(queue, found)
        changes += _declaration(queue, found, reason)
    bound = {_identity(binding) for binding in live.bindings}
    changes += [
        Change(action=Action.CREATE, resource=binding)
        for binding in wanted.bindings
        if _identity(binding) not in bound
    ]
    return changes


def _declaration(
    resource: Exchange | Queue, there: Exchange | Queue | None, conflict: str
) -> list[Change]:
    if there is None:
        return [Change(action=Action.CREATE, resource=resource)]
    if not conflict:
        return []
    return [Change(action=Action.CONFLICT, resource=resource, live=there, reason=conflict)]


def _exchange_conflict(wanted: Exchange, live: Exchange) -> str:
    if wanted.type != live.type:
        return f"it is of type {live.type}, not {wanted.type}"
    return _argument_conflict(wanted.arguments, live.arguments, lambda key: key == _ALTERNATE)


def _queue_conflict(wanted: Queue, live: Queue) -> str:
    return _argument_conflict(wanted.arguments, live.arguments, lambda key: key.startswith("x-"))


_ALTERNATE = "alternate-exchange"


def _argument_conflict(
    wanted: Mapping[str, Value], live: Mapping[str, Value], is_compared: Callable[[str], bool]
) -> str:
    """Return how arguments differ that RabbitMQ compares when a resource is declared again."""
    differing = [
        f"{key} is {live.get(key, 'not set')!r}, not {wanted.get(key, 'unset')!r}"
        for key in sorted(wanted.keys() | live.keys())
        if is_compared(key) and wanted.get(key) != live.get(key)
    ]
    return "; ".join(differing)


def _identity(binding: Binding) -> tuple[str, str, bool, str, str]:
    return (
        binding.source,
        binding.destination,
        binding.to_exchange,
        binding.routing_key,
        json.dumps(binding.arguments, sort_keys=True),
    )


def _parameters(wanted: Topology, live: Topology) -> list[Change]:
    there = {parameter.name: parameter for parameter in live.parameters}
    return [
        Change(
            action=Action.UPDATE if parameter.name in there else Action.CREATE,
            resource=parameter,
            live=there.get(parameter.name),
        )
        for parameter in wanted.parameters
        if there.get(parameter.name) != parameter
    ]


def _shovels(wanted: Topology, live: Topology, *, keep: bool) -> list[Change]:
    """Return the changes of shovels; with `keep`, one of a queue that is not wanted stays."""
    there = {shovel.name: shovel for shovel in live.shovels}
    names = {shovel.name for shovel in wanted.shovels}
    queues = {queue.name for queue in wanted.queues}
    changes = [
        Change(action=Action.DELETE, resource=shovel, live=shovel)
        for shovel in live.shovels
        if is_owned(shovel)
        and shovel.name not in names
        and (not keep or shovel.value.get("src-queue") in queues)
    ]
    changes += [
        Change(
            action=Action.UPDATE if shovel.name in there else Action.CREATE,
            resource=shovel,
            live=there.get(shovel.name),
        )
        for shovel in wanted.shovels
        if there.get(shovel.name) != shovel
    ]
    return changes


def _policies(wanted: Topology, live: Topology, *, keep: bool) -> list[Change]:
    names = {policy.name for policy in wanted.policies}
    ours = [
        policy
        for policy in live.policies
        if is_owned(policy)
        # What raises a journal's bound stays for as long as the bridge needs it.
        and not (names and policy.name.startswith(RAISED_PREFIX))
        and (policy.name in names or not keep or _is_superseded(policy, wanted, live))
    ]
    queues = [queue.name for queue in (*wanted.queues, *live.queues)]
    return [_policy_change(step) for step in rollout(wanted.policies, ours, queues)]


def _is_superseded(old: Policy, wanted: Topology, live: Topology) -> bool:
    """Whether each queue of a policy has a wanted one, with which it would only tie."""
    taken = [queue.name for queue in live.queues if policy.matches(old, queue.name)]
    new = [each for each in wanted.policies if not each.is_operator]
    return (
        not old.is_operator
        and bool(taken)
        and all(any(policy.matches(each, name) for each in new) for name in taken)
    )


def _policy_change(step: Step) -> Change:
    if step.new is None:
        assert step.old is not None
        return Change(action=Action.DELETE, resource=step.old, live=step.old)
    action = Action.CREATE if step.old is None else Action.UPDATE
    return Change(action=action, resource=step.new, live=step.old)


def _is_running(name: str, wanted: Container[str]) -> bool:
    match = _COMES_AND_GOES.fullmatch(name)
    return name.startswith(_SHARED_PREFIX) or bool(match and match["entity"] in wanted)


def _stale(wanted: Topology, live: Topology, is_kept: Callable[[str], bool]) -> list[Change]:
    """Return the deletions of what is ours and not wanted."""
    queues = {queue.name for queue in wanted.queues}
    exchanges = {exchange.name for exchange in wanted.exchanges}
    old_queues = [
        queue
        for queue in live.queues
        if is_owned(queue) and queue.name not in queues and not is_kept(queue.name)
    ]
    old_exchanges = [
        exchange
        for exchange in live.exchanges
        if is_owned(exchange) and exchange.name not in exchanges and not is_kept(exchange.name)
    ]
    going = {queue.name for queue in old_queues} | {exchange.name for exchange in old_exchanges}
    changes = [
        Change(action=Action.DELETE, resource=binding, live=binding)
        for binding in _old_bindings(wanted, live)
        if binding.destination not in going and binding.source not in going
    ]
    changes += [
        Change(
            action=Action.DELETE,
            resource=exchange,
            live=exchange,
            is_destructive=True,
            reason="what is published to it is refused from then on",
        )
        for exchange in old_exchanges
    ]
    changes += [
        Change(
            action=Action.DELETE,
            resource=queue,
            live=queue,
            stakes=(queue.name,),
            is_destructive=True,
            reason="its messages go with it",
        )
        for queue in old_queues
    ]
    known = {parameter.name for parameter in wanted.parameters}
    changes += [
        Change(action=Action.DELETE, resource=parameter, live=parameter)
        for parameter in live.parameters
        if is_owned(parameter) and parameter.name not in known
    ]
    return changes


def _replaced(wanted: Topology, live: Topology) -> list[Change]:
    """Return the deletions of bindings with whose arguments a wanted one leads elsewhere.

    So dead letters of one reason go to one place.
    """
    taken = {
        (binding.source, json.dumps(binding.arguments, sort_keys=True))
        for binding in wanted.bindings
        if binding.arguments
    }
    return [
        Change(action=Action.DELETE, resource=binding, live=binding)
        for binding in _old_bindings(wanted, live)
        if (binding.source, json.dumps(binding.arguments, sort_keys=True)) in taken
    ]


def _old_bindings(wanted: Topology, live: Topology) -> list[Binding]:
    """Return bindings that nobody wants between two resources of ours; a user's own are none."""
    exchanges = {exchange.name for exchange in live.exchanges if is_owned(exchange)}
    queues = {queue.name for queue in live.queues if is_owned(queue)}
    kept = {_identity(binding) for binding in wanted.bindings}
    return [
        binding
        for binding in live.bindings
        if binding.source in exchanges
        and binding.destination in (exchanges if binding.to_exchange else queues)
        and _identity(binding) not in kept
    ]
