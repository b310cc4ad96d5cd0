"""A plan: what would change in a broker, what stands in its way, and what people should know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bridge.topology.diff import Action, Change, diff, is_owned
from bridge.topology.policy import winners
from bridge.topology.resources import Policy, Topology, Value
from policies.live import Export, topology_of

_Settings = Mapping[str, Value]


_FATE = frozenset(
    {
        *("message-ttl", "expires", "delivery-limit", "max-length", "max-length-bytes", "max-age"),
        *("overflow", "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy"),
    }
)
"""Settings that decide what becomes of messages; others are a user's own business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Which policies are in force on a queue once the plan is carried out.

    Attributes:
        policies: one as a rule, none, or several of equal priority, of which RabbitMQ takes any.
        wanted: the policy of ours that should be; `None` when it needs none.
        operators: the same of operator policies; of what both limit, the smaller limit holds.
        ceiling: the operator policy of ours that should be.
    """

    queue: str
    policies: tuple[Policy, ...]
    wanted: Policy | None
    operators: tuple[Policy, ...] = ()
    ceiling: Policy | None = None

    @property
    def is_right(self) -> bool:
        """Whether messages fare as they shall: by our policy, with nobody else's limits."""
        if self.wanted is not None and self.policies != (self.wanted,):
            return False
        if len(self.policies) > 1 or len(self.operators) > 1:
            return False
        meant = _in_force(*(each for each in (self.wanted, self.ceiling) if each is not None))
        return _in_force(*self.policies, *self.operators) == meant


def _in_force(*policies: Policy) -> _Settings:
    """What policies together decide of messages."""
    found: dict[str, Value] = {}
    for key, value in (item for policy in policies for item in policy.definition.items()):
        old = found.get(key)
        if key in _FATE and not (isinstance(old, int) and isinstance(value, int) and old < value):
            found[key] = value
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Changes in the order in which they are made.

    Attributes:
        winners: the policy of each queue afterwards.
        notes: what happens to messages that are already queued.
    """

    changes: tuple[Change, ...]
    winners: tuple[Winner, ...] = ()
    notes: tuple[str, ...] = ()

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


def make(wanted: Topology, export: Export, vhost: str, *, keep: bool = False) -> Plan:
    """Return the plan that makes a vhost as wanted.

    Args:
        keep: leave alone what is not wanted.
    """
    live = topology_of(export, vhost)
    found = tuple(_winners(wanted, live.policies))
    return Plan(
        changes=diff(wanted, live, keep=keep), winners=found, notes=tuple(_notes(live, found))
    )


def _winners(wanted: Topology, live: Iterable[Policy]) -> list[Winner]:
    foreign = [policy for policy in live if not is_owned(policy)]
    ours, ceilings = _by_kind(wanted.policies)
    users, operators = _by_kind([*wanted.policies, *foreign])
    return [
        Winner(
            queue=queue.name,
            policies=winners(queue, users),
            wanted=next(iter(winners(queue, ours)), None),
            operators=winners(queue, operators),
            ceiling=next(iter(winners(queue, ceilings)), None),
        )
        for queue in wanted.queues
    ]


def _by_kind(policies: Iterable[Policy]) -> tuple[list[Policy], list[Policy]]:
    """Return the policies, and the operator policies."""
    found: tuple[list[Policy], list[Policy]] = ([], [])
    for policy in policies:
        found[policy.is_operator].append(policy)
    return found


_NOTES: tuple[tuple[Callable[[_Settings, _Settings], bool], str], ...] = (
    (
        lambda old, new: old.get("message-ttl") != new.get("message-ttl"),
        "message-ttl changes: messages that are queued already keep the TTL with which they came, "
        "only later ones get the new one",
    ),
    (
        lambda old, new: _is_lower("delivery-limit", old, new),
        "delivery-limit falls: a message that has been returned more often is dead-lettered at its "
        "next return, not before",
    ),
    (
        lambda old, new: _is_lower("max-length-bytes", old, new),
        "max-length-bytes falls: nothing is dropped; publishes are refused until a queue is below",
    ),
    (
        lambda old, new: "expires" in new and old.get("expires") != new["expires"],
        "expires changes: it counts from a queue's last use, so that one that has been unused for "
        "longer is deleted at once, with its messages",
    ),
    (
        lambda old, new: old.get("dead-letter-exchange") != new.get("dead-letter-exchange"),
        "dead-letter-exchange changes: at once, for queued messages too",
    ),
)


def _notes(live: Topology, found: Iterable[Winner]) -> list[str]:
    """Return one sentence a kind of change, with the queues that it concerns."""
    old = {queue.name: _settings(winners(queue, live.policies)) for queue in live.queues}
    pairs = [
        (winner.queue, old[winner.queue], _settings(winner.policies))
        for winner in found
        if winner.queue in old
    ]
    notes = []
    for applies, sentence in _NOTES:
        queues = [name for name, before, after in pairs if applies(before, after)]
        if queues:
            more = f" and {len(queues) - 3} more" if len(queues) > 3 else ""
            notes.append(f"{', '.join(queues[:3])}{more}: {sentence}.")
    return notes


def _settings(policies: tuple[Policy, ...]) -> _Settings:
    return policies[0].definition if policies else {}


def _is_lower(key: str, old: _Settings, new: _Settings) -> bool:
    before, after = old.get(key), new.get(key)
    return isinstance(before, int) and isinstance(after, int) and after < before
