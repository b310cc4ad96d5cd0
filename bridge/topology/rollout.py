"""The order in which policies are changed, so that no queue is without its policy at any instant.

When a queue moves from one policy to another, the new policy is set before the old one is changed.
Where two policies would each have to wait for the other, an interim copy of the first keeps its
queues meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from bridge.topology.patterns import names_in
from bridge.topology.policy import matches
from bridge.topology.resources import Policy

INTERIM = ".interim"
"""Suffix of the names of policies' interim copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Set a policy (`new`), or delete one (`new` is None); `old` is the live policy, if any."""

    old: Policy | None
    new: Policy | None


def rollout(
    wanted: Sequence[Policy], live: Sequence[Policy], queues: Iterable[str]
) -> tuple[Step, ...]:
    """Return the steps from the live policies to the wanted ones.

    Args:
        live: the bridge's own policies.
        queues: the names of all queues that exist or will exist.
    """
    old_by_name = {(policy.is_operator, policy.name): policy for policy in live}
    new_by_name = {(policy.is_operator, policy.name): policy for policy in wanted}
    changed = [new for name, new in sorted(new_by_name.items()) if old_by_name.get(name) != new]
    waits_for = _dependencies(changed, old_by_name, frozenset(queues))
    steps: list[Step] = []
    interim: list[Policy] = []
    while changed:
        ready = [policy for policy in changed if not waits_for[_key(policy)]]
        chosen = ready[0] if ready else changed[0]
        old = old_by_name.get(_key(chosen))
        if not ready and old is not None:
            interim.append(dataclasses.replace(old, name=old.name + INTERIM))
            steps.append(Step(old=None, new=interim[-1]))
        steps.append(Step(old=old, new=chosen))
        changed.remove(chosen)
        for waiting in waits_for.values():
            waiting.discard(_key(chosen))
    gone = [old for name, old in sorted(old_by_name.items()) if name not in new_by_name]
    return (*steps, *(Step(old=policy, new=None) for policy in (*interim, *gone)))


def _key(policy: Policy) -> tuple[bool, str]:
    return policy.is_operator, policy.name


def _dependencies(
    changed: Sequence[Policy],
    old_by_name: Mapping[tuple[bool, str], Policy],
    queues: Set[str],
) -> dict[tuple[bool, str], set[tuple[bool, str]]]:
    """Return, for each changed policy, the policies that must be set before it.

    These are the policies that gain a queue which the changed policy loses.
    """
    gaining: dict[tuple[bool, str], set[tuple[bool, str]]] = {}
    for policy in changed:
        for queue in _taken(policy, queues) - _taken(old_by_name.get(_key(policy)), queues):
            gaining.setdefault((policy.is_operator, queue), set()).add(_key(policy))
    waits_for: dict[tuple[bool, str], set[tuple[bool, str]]] = {}
    for policy in changed:
        lost = _taken(old_by_name.get(_key(policy)), queues) - _taken(policy, queues)
        waits_for[_key(policy)] = {
            gainer for queue in lost for gainer in gaining.get((policy.is_operator, queue), ())
        }
    return waits_for


def _taken(policy: Policy | None, queues: Set[str]) -> Set[str]:
    """Return the queues that a policy matches; a list is not tried on each queue."""
    if policy is None:
        return frozenset()
    listed = names_in(policy.pattern)
    if listed is not None:
        return listed & queues
    return {queue for queue in queues if matches(policy, queue)}
