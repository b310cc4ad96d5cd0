"""The changes that turn a live broker's topology into a wanted one; a computation without I/O.

Only the bridge's own resources are ever deleted: queues and exchanges with the schema argument,
bindings between two of them, and policies, shovels and global parameters with the bridge's prefix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from bridge.topology import definitions, policy
from bridge.topology.names import (
    BUCKETS_SUFFIX,
    DEFERRED_SUFFIX,
    HISTORY_SUFFIX,
    SESSIONS_SUFFIX,
    SETTLED_SUFFIX,
    TRANSFER_SUFFIX,
)
from bridge.topology.parts import SCHEMA_ARGUMENT
from bridge.topology.perils import Peril, carried_out, key_of, perils, touches
from bridge.topology.policy import RAISED_PREFIX
from bridge.topology.resources import (
    Binding,
    Exchange,
    Parameter,
    Policy,
    Queue,
    Resource,
    Shovel,
    Topology,
)
from bridge.topology.rollout import Step, rollout
from bridge.topology.sharing import is_list


class Action(Enum):
    """The kind of a change."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One step of a diff; the steps are applied in order.

    Attributes:
        action: the kind of the change.
        resource: the wanted resource, or the one to delete.
        live: the resource as it is; None when it does not exist.
        reason: why the change is impossible (`CONFLICT`), or which messages it loses (destructive
            steps).
        stakes: the queues that may lose messages by the change.
        is_destructive: whether messages can be lost by the change.
    """

    action: Action
    resource: Resource
    live: Resource | None = None
    reason: str = ""
    stakes: tuple[str, ...] = ()
    is_destructive: bool = False


_ONE_EACH = (DEFERRED_SUFFIX, HISTORY_SUFFIX, SESSIONS_SUFFIX, SETTLED_SUFFIX)
_MORE_EACH = (BUCKETS_SUFFIX, TRANSFER_SUFFIX)
_COMES_AND_GOES = re.compile(
    f"(?P<entity>.+?)(?:{'|'.join(map(re.escape, _ONE_EACH))}"
    f"|(?:{'|'.join(map(re.escape, _MORE_EACH))}).*)"
)
"""Names of queues that bridges make while they run; no compiled topology contains these queues."""

_SHARED_PREFIX = "$sb/"


def diff(wanted: Topology, live: Topology, *, keep: bool = False) -> tuple[Change, ...]:
    """Return the changes from `live` to `wanted`, in an order that loses no message on the way.

    Conflicts come first: a live queue or exchange with other unchangeable properties gets no other
    step. Then come policies, so that a new queue has its policy from the start, then everything
    new, then deletions.

    Args:
        keep: keep unwanted resources, except bindings and policies that a wanted one replaces, and
            shovels of wanted queues.
    """
    declared = declarations(
        (*wanted.exchanges, *wanted.queues, *wanted.bindings),
        (*live.exchanges, *live.queues, *live.bindings),
    )
    policies = _policies(wanted, live, keep=keep)
    changes = [change for change in declared if change.action is Action.CONFLICT]
    changes += [change for change in policies if change.action is not Action.DELETE]
    changes += [change for change in declared if change.action is not Action.CONFLICT]
    changes += _shovels(wanted, live, keep=keep)
    changes += _put(wanted.parameters, live.parameters)
    changes += [change for change in policies if change.action is Action.DELETE]
    if keep:
        changes += _replaced(wanted, live)
    else:
        # A topic has a front exchange of its name, and no queue.
        kept = {queue.name for queue in wanted.queues} | {front.name for front in wanted.exchanges}
        changes += _stale(wanted, live, lambda name: _is_running(name, kept))
    return tuple(changes)


def marked(changes: Sequence[Change], live: Topology) -> tuple[Change, ...]:
    """Return the changes, with each destructive one marked: its queues, and why messages are lost.

    All queues count, also those that the bridge has not made, under any policies.
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
    """Return the index of the change that causes a peril.

    It is the last change that touches the queue's settings or dead letters, a deletion only when
    there is no other. The last change of all stands in when none touches them.
    """
    able = [
        number
        for number, change in enumerate(changes)
        for each in (change.resource, change.live)
        if each is not None and touches(each, peril.queue, peril.exchanges)
    ]
    lasting = [number for number in able if changes[number].action is not Action.DELETE]
    return (lasting or able or [len(changes) - 1])[-1]


def removal(live: Topology) -> tuple[Change, ...]:
    """Return the changes that delete all resources of the bridge, messages included."""
    nothing = Topology()
    changes = [
        *_shovels(nothing, live, keep=False),
        *_stale(nothing, live, lambda name: False),
        *_policies(nothing, live, keep=False),
    ]
    return marked(changes, live)


def is_owned(resource: Resource) -> bool:
    """Whether a resource has the bridge's mark; a binding never has."""
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


Declared = Exchange | Queue | Binding


def declarations(wanted: Iterable[Declared], live: Iterable[Declared]) -> list[Change]:
    """Return the creations of missing exchanges, queues and bindings, and the conflicts."""
    there = {key_of(each): each for each in live}
    changes: list[Change] = []
    for resource in wanted:
        found = there.get(key_of(resource))
        if found is None:
            changes.append(Change(action=Action.CREATE, resource=resource))
        elif reason := _conflict(resource, found):
            changes.append(
                Change(action=Action.CONFLICT, resource=resource, live=found, reason=reason)
            )
    return changes


def _conflict(wanted: Resource, live: Resource) -> str:
    """Return the differences for which RabbitMQ would refuse to declare a resource again, or ""."""
    match wanted, live:
        case Exchange() as ours, Exchange() as theirs if ours.type != theirs.type:
            return f"it is of type {theirs.type}, not {ours.type}"
        case (Exchange() | Queue()) as ours, (Exchange() | Queue()) as theirs:
            differing = [
                f"{key} is {theirs.arguments.get(key, 'not set')!r}, "
                f"not {ours.arguments.get(key, 'unset')!r}"
                for key in sorted(ours.arguments.keys() | theirs.arguments.keys())
                if key.startswith(_COMPARED[type(ours)])
                and ours.arguments.get(key) != theirs.arguments.get(key)
            ]
            return "; ".join(differing)
    return ""


_COMPARED = {Exchange: "alternate-exchange", Queue: "x-"}
"""Class of a resource -> prefix of the arguments that RabbitMQ compares at a new declaration."""


def _put(wanted: Iterable[Resource], live: Iterable[Resource]) -> list[Change]:
    """Return the changes of resources that are replaced as a whole, such as parameters."""
    there = {key_of(each): each for each in live}
    return [
        Change(
            action=Action.UPDATE if key_of(each) in there else Action.CREATE,
            resource=each,
            live=there.get(key_of(each)),
        )
        for each in wanted
        if there.get(key_of(each)) != each
    ]


def deletion(resource: Resource) -> Change:
    """Return the change that deletes a resource."""
    return Change(action=Action.DELETE, resource=resource, live=resource)


def _shovels(wanted: Topology, live: Topology, *, keep: bool) -> list[Change]:
    """Return the changes of shovels; with `keep`, shovels of unwanted queues stay."""
    names = {shovel.name for shovel in wanted.shovels}
    queues = {queue.name for queue in wanted.queues}
    gone = [
        deletion(shovel)
        for shovel in live.shovels
        if is_owned(shovel)
        and shovel.name not in names
        and (not keep or shovel.value.get("src-queue") in queues)
    ]
    return gone + _put(wanted.shovels, live.shovels)


def _policies(wanted: Topology, live: Topology, *, keep: bool) -> list[Change]:
    names = {policy.name for policy in wanted.policies}
    ours = [
        policy
        for policy in live.policies
        if is_owned(policy)
        # The running bridge sets and deletes the policies that raise journals' bounds.
        and not (names and policy.name.startswith(RAISED_PREFIX))
        and (policy.name in names or not keep or _is_superseded(policy, wanted, live))
    ]
    queues = [queue.name for queue in (*wanted.queues, *live.queues)]
    return [_policy_change(step) for step in rollout(wanted.policies, ours, queues)]


def _is_superseded(old: Policy, wanted: Topology, live: Topology) -> bool:
    """Whether each live queue of a policy has a wanted policy, too: the old one would only tie.

    A list without any queue would only take a user's queue of that name.
    """
    taken = [queue.name for queue in live.queues if policy.matches(old, queue.name)]
    new = [each for each in wanted.policies if not each.is_operator]
    return (
        not old.is_operator
        and (bool(taken) or is_list(old))
        and all(any(policy.matches(each, name) for each in new) for name in taken)
    )


def _policy_change(step: Step) -> Change:
    if step.new is None:
        assert step.old is not None
        return deletion(step.old)
    action = Action.CREATE if step.old is None else Action.UPDATE
    return Change(action=action, resource=step.new, live=step.old)


def _is_running(name: str, wanted: Container[str]) -> bool:
    match = _COMES_AND_GOES.fullmatch(name)
    return name.startswith(_SHARED_PREFIX) or bool(match and match["entity"] in wanted)


def _stale(wanted: Topology, live: Topology, is_kept: Callable[[str], bool]) -> list[Change]:
    """Return the deletions of the bridge's unwanted bindings, exchanges, queues and parameters."""
    known = _keys(wanted.resources)
    declared: list[Exchange | Queue] = [*live.exchanges, *live.queues]
    old = [
        each
        for each in declared
        if is_owned(each) and key_of(each) not in known and not is_kept(each.name)
    ]
    going = {each.name for each in old}
    changes = [
        deletion(binding)
        for binding in _old_bindings(wanted, live)
        if binding.destination not in going and binding.source not in going
    ]
    changes += [
        replace(
            deletion(each),
            stakes=(each.name,) if isinstance(each, Queue) else (),
            is_destructive=True,
            reason="its messages go with it"
            if isinstance(each, Queue)
            else "what is published to it is refused from then on",
        )
        for each in old
    ]
    changes += [
        deletion(parameter)
        for parameter in live.parameters
        if is_owned(parameter) and key_of(parameter) not in known
    ]
    return changes


def _replaced(wanted: Topology, live: Topology) -> list[Change]:
    """Return the deletions of old bindings with the exchange and arguments of a wanted one.

    So dead letters of one reason go to one place only.
    """
    taken = {
        (binding.source, json.dumps(binding.arguments, sort_keys=True))
        for binding in wanted.bindings
        if binding.arguments
    }
    return [
        deletion(binding)
        for binding in _old_bindings(wanted, live)
        if (binding.source, json.dumps(binding.arguments, sort_keys=True)) in taken
    ]


def _old_bindings(wanted: Topology, live: Topology) -> list[Binding]:
    """Return the unwanted bindings between two of the bridge's resources, not a user's own."""
    exchanges = {exchange.name for exchange in live.exchanges if is_owned(exchange)}
    queues = {queue.name for queue in live.queues if is_owned(queue)}
    kept = _keys(wanted.bindings)
    return [
        binding
        for binding in live.bindings
        if binding.source in exchanges
        and binding.destination in (exchanges if binding.to_exchange else queues)
        and key_of(binding) not in kept
    ]
