"""A plan: what would change in a broker, what stands in its way, and what people should know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bridge.topology.diff import Action, Change, diff, is_owned
from bridge.topology.policy import winners
from bridge.topology.resources import Policy, Topology, Value
from policies.live import Export, topology_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Which policy is in force on a queue once the plan is carried out.

    Attributes:
        policies: one as a rule, none, or several of equal priority, of which RabbitMQ takes any.
        wanted: the policy of ours that should be; `None` when it needs none.
    """

    queue: str
    policies: tuple[Policy, ...]
    wanted: Policy | None

    @property
    def is_right(self) -> bool:
        """Whether the policy in force is ours, or there should be none of ours."""
        return self.wanted is None or self.policies == (self.wanted,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Changes in the order in which they are made, and the policy of each queue afterwards."""

    changes: tuple[Change, ...]
    winners: tuple[Winner, ...]

    @property
    def conflicts(self) -> tuple[Change, ...]:
        """What cannot be changed in place."""
        return tuple(each for each in self.changes if each.action is Action.CONFLICT)

    @property
    def destructive(self) -> tuple[Change, ...]:
        """Steps with which messages can be lost."""
        return tuple(each for each in self.changes if each.is_destructive)

    @property
    def overridden(self) -> tuple[Winner, ...]:
        """Queues on which another policy than ours is in force."""
        return tuple(winner for winner in self.winners if not winner.is_right)

    @property
    def is_empty(self) -> bool:
        """Whether the broker is as wanted."""
        return not self.changes and not self.overridden

    def notes(self) -> tuple[str, ...]:
        """Return what happens to messages that are already queued."""
        found = dict.fromkeys(
            note
            for change in self.changes
            if isinstance(change.resource, Policy) and change.action is not Action.DELETE
            for note in _notes(change)
        )
        return tuple(found)


def make(wanted: Topology, export: Export, vhost: str, *, keep: bool = False) -> Plan:
    """Return the plan that makes a vhost as wanted.

    Args:
        keep: leave alone what is not wanted.
    """
    live = topology_of(export, vhost)
    return Plan(
        changes=diff(wanted, live, keep=keep), winners=tuple(_winners(wanted, live.policies))
    )


def _winners(wanted: Topology, live: Iterable[Policy]) -> list[Winner]:
    ours = [policy for policy in wanted.policies if not policy.is_operator]
    foreign = [policy for policy in live if not is_owned(policy) and not policy.is_operator]
    found = []
    for queue in wanted.queues:
        own = winners(queue, ours)
        found.append(
            Winner(
                queue=queue.name,
                policies=winners(queue, [*ours, *foreign]),
                wanted=own[0] if own else None,
            )
        )
    return found


def _notes(change: Change) -> list[str]:
    assert isinstance(change.resource, Policy)
    old = change.live.definition if isinstance(change.live, Policy) else {}
    new = change.resource.definition
    name = change.resource.name
    found = []
    if old.get("message-ttl") != new.get("message-ttl"):
        found.append(
            f"{name}: messages that are queued already keep the TTL with which they came; only "
            "later ones get the new one."
        )
    if _is_lower("delivery-limit", old, new):
        found.append(
            f"{name}: a message that has been returned more often than the new delivery-limit is "
            "dead-lettered at its next return, not before."
        )
    if _is_lower("max-length-bytes", old, new):
        found.append(
            f"{name}: nothing is dropped from a queue above the new max-length-bytes; publishes to "
            "it are refused until it is below."
        )
    if "expires" in new and old.get("expires") != new["expires"]:
        found.append(
            f"{name}: expires counts from a queue's last use; a queue that has been unused for "
            "longer is deleted at once, with its messages."
        )
    return found


def _is_lower(key: str, old: Mapping[str, Value], new: Mapping[str, Value]) -> bool:
    before, after = old.get(key), new.get(key)
    return isinstance(before, int) and isinstance(after, int) and after < before
