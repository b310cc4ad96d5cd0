"""A plan: changes to a broker, conflicts, and notes about messages that are queued already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bridge.model import entity as model
from bridge.topology import definitions
from bridge.topology.diff import Action, Change, deletion, diff, is_owned, marked
from bridge.topology.names import resource_base
from bridge.topology.policy import winners
from bridge.topology.resources import Binding, Exchange, Policy, Queue, Topology, Value
from bridge.topology.rollout import INTERIM
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
    """The policies in force on a queue once the plan is carried out.

    Attributes:
        policies: as a rule one; several of equal priority when RabbitMQ may take any of them.
        wanted: the policy of ours that should be in force; `None` when the queue needs none.
        operators: the operator policies in force; of two limits the smaller one holds.
        ceiling: the operator policy of ours that should be in force; `None` for none.
    """

    queue: str
    policies: tuple[Policy, ...]
    wanted: Policy | None
    operators: tuple[Policy, ...] = ()
    ceiling: Policy | None = None

    @property
    def is_right(self) -> bool:
        """Whether our policies alone decide what happens to the queue's messages."""
        if self.wanted is not None and self.policies != (self.wanted,):
            return False
        if len(self.policies) > 1 or len(self.operators) > 1:
            return False
        meant = _in_force(*(each for each in (self.wanted, self.ceiling) if each is not None))
        return _in_force(*self.policies, *self.operators) == meant


def _in_force(*policies: Policy) -> _Settings:
    """Return the settings of `_FATE` in several policies; of two numbers the smaller one."""
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
        winners: the policies of each queue after the plan.
        notes: what happens to messages that are already queued.
        messages: the number of messages in each queue, to show how many are at stake.
        names: Service Bus's path by the entity's RabbitMQ name, where the two differ.
        losses: the number of lost properties.
    """

    changes: tuple[Change, ...]
    winners: tuple[Winner, ...] = ()
    notes: tuple[str, ...] = ()
    messages: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    losses: int = 0

    def entity(self, name: str) -> str | None:
        """Return Service Bus's path of the entity of a RabbitMQ name, where the two differ.

        The name of a definition has the virtual host before the entity.
        """
        base = entity_of(name)
        return self.names.get(base) or self.names.get(base.rpartition(":")[2])

    @property
    def conflicts(self) -> tuple[Change, ...]:
        """Changes that cannot be made in place."""
        return tuple(each for each in self.changes if each.action is Action.CONFLICT)

    @property
    def destructive(self) -> tuple[Change, ...]:
        """Changes by which messages can be lost."""
        return tuple(each for each in self.changes if each.is_destructive)

    @property
    def overridden(self) -> tuple[Winner, ...]:
        """Queues on which another policy than ours is in force."""
        return tuple(winner for winner in self.winners if not winner.is_right)

    @property
    def is_empty(self) -> bool:
        """Whether the broker is as wanted."""
        return not self.changes and not self.overridden


def make(
    wanted: Topology, export: Export, vhost: str, *, keep: bool = False, prune: bool = True
) -> Plan:
    """Return the plan that makes a vhost as wanted.

    Args:
        keep: leave unwanted objects alone (see `diff`), but for our operator policies and the
            interim policies of a plan that was not carried out to its end.
        prune: delete objects of entities that are not wanted. Without it they stay: somebody else
            may be about to create these entities.
    """
    live = topology_of(export, vhost)
    found = tuple(_winners(wanted, live.policies))
    changes = diff(wanted, live, keep=keep)
    if keep:
        changes += _leftovers(wanted, live)
    if not prune:
        changes = tuple(each for each in changes if not _is_a_strangers(each, wanted))
    return Plan(changes=marked(changes, live), winners=found, notes=tuple(_notes(live, found)))


def display_names(namespace: model.Namespace) -> dict[str, str]:
    """Return the path of each entity by its RabbitMQ name, where the two differ."""
    paths = [each.path for each in definitions.entities(namespace)]
    return {base: path for path in paths if (base := resource_base(path)) != path}


def entity_of(name: str) -> str:
    """Return an entity's RabbitMQ name from the name of one of its objects."""
    return name.partition("/$")[0]


def _leftovers(wanted: Topology, live: Topology) -> tuple[Change, ...]:
    """Return the deletions of our operator policies and interim policies that are not wanted."""
    kept = {(policy.is_operator, policy.name) for policy in wanted.policies}
    return tuple(
        deletion(policy)
        for policy in live.policies
        if is_owned(policy)
        and (policy.is_operator or policy.name.endswith(INTERIM))
        and (policy.is_operator, policy.name) not in kept
    )


def _is_a_strangers(change: Change, wanted: Topology) -> bool:
    """Whether a change deletes an object of an entity that is not wanted."""
    if change.action is not Action.DELETE:
        return False
    match change.resource:
        case Queue() as queue:
            names = [queue.name]
        case Exchange() as exchange:
            names = [exchange.name]
        case Binding() as binding:
            names = [binding.source, binding.destination]
        case _:
            return False
    known = {entity_of(queue.name) for queue in wanted.queues}
    known |= {entity_of(exchange.name) for exchange in wanted.exchanges}
    return any(entity_of(name) not in known for name in names)


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
    """Return a sentence for each kind of policy change, with the queues concerned."""
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
