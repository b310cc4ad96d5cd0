"""A plan: what would change in a broker, what stands in its way, and what people should know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bridge.topology.diff import Action, Change, diff, is_owned
from bridge.topology.policy import winners
from bridge.topology.resources import Policy, Topology, Value
from policies.live import Export, topology_of

_Settings = Mapping[str, Value]


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
