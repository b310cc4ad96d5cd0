"""The summary of a plan: a row for each entity that it touches, above the steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from bridge.model.errors import ServiceBusError
from bridge.topology import definitions
from bridge.topology.diff import Action, Change
from bridge.topology.names import (
    HISTORY_SUFFIX,
    JOURNAL_SUFFIX,
    MOVED_SUFFIX,
    SETTLED_SUFFIX,
    SUBSCRIPTIONS,
    resource_base,
)
from bridge.topology.resources import (
    Binding,
    Exchange,
    Parameter,
    Policy,
    Queue,
    Resource,
    Shovel,
    Value,
)
from policies.columns import aligned
from policies.plan import Plan, entity_of

SHARED = "(policies, and what all entities share)"
"""What stands for an entity's path in the row of all that belongs to no single entity."""

_SHARED_PREFIX = "$sb/"

_STREAMS = (JOURNAL_SUFFIX, MOVED_SUFFIX, HISTORY_SUFFIX, SETTLED_SUFFIX)

_COLOURS = {
    Action.CREATE: "\x1b[32m",
    Action.UPDATE: "\x1b[33m",
    Action.DELETE: "\x1b[31m",
    Action.CONFLICT: "\x1b[1;31m",
}

_FATES = {
    Action.CREATE: "new",
    Action.UPDATE: "changed",
    Action.DELETE: "removed",
    Action.CONFLICT: "conflict",
}


@dataclass(slots=True, kw_only=True)
class EntityChanges:
    """What a plan does to one entity.

    Attributes:
        name: the entity's name in RabbitMQ; `SHARED`.
        path: Service Bus's path where it is known, else the name.
        fate: `CREATE` for a new entity, `DELETE` for one that goes, `CONFLICT` for one of which an
            object cannot be changed in place, else `UPDATE`.
        counts: the number of steps of each kind.
        properties: the fields of the definition that change, as the definition names them.
        stakes: the queues that may lose messages.
    """

    name: str
    path: str
    fate: Action = Action.UPDATE
    counts: Counter[Action] = field(default_factory=Counter)
    properties: tuple[str, ...] = ()
    stakes: tuple[str, ...] = ()


def entities(plan: Plan) -> tuple[EntityChanges, ...]:
    """Return what the plan does to each entity, by path; what all share comes last.

    A queue whose messages are at stake is its own entity's, also where a shared policy is what
    puts them at stake.
    """
    found: dict[str, EntityChanges] = {}

    def of(base: str) -> EntityChanges:
        return found.setdefault(base, EntityChanges(name=base, path=plan.entity(base) or base))

    for change in plan.changes:
        row = of(_base(change.resource))
        row.counts[change.action] += 1
        if isinstance(change.resource, Parameter):
            _note_definition(row, change)
        elif _is_front(change.resource) and row.fate is Action.UPDATE:
            row.fate = change.action
        for queue in change.stakes:
            staked = of(_entity(queue))
            staked.stakes = tuple(dict.fromkeys((*staked.stakes, queue)))
    for row in found.values():
        if row.counts[Action.CONFLICT]:
            row.fate = Action.CONFLICT
    if SHARED in found:
        found[SHARED].fate = Action.UPDATE
    return tuple(sorted(found.values(), key=lambda row: (row.name == SHARED, row.path.lower())))


def table(plan: Plan, *, is_coloured: bool = False) -> list[str]:
    """Return the lines of the summary; none for a plan without steps.

    Args:
        is_coloured: with the colours of a terminal.
    """
    rows = entities(plan)
    if not rows:
        return []
    actions = [action for action in Action if any(row.counts[action] for row in rows)]
    columns = [
        ("entity", [row.path for row in rows]),
        ("change", ["" if row.name == SHARED else _FATES[row.fate] for row in rows]),
        *(
            (f"to {action.value}", [_number(row.counts[action]) for row in rows])
            for action in actions
        ),
        ("at stake", [_at_stake(row.stakes, plan) for row in rows]),
        ("properties", [", ".join(row.properties) for row in rows]),
    ]
    shown = [(title, cells) for title, cells in columns if any(cells)]
    numbers = [n for n, (title, _) in enumerate(shown) if title.startswith(("to ", "at "))]
    lines = aligned(
        [
            [title for title, _ in shown],
            *(list(row) for row in zip(*(c for _, c in shown), strict=True)),
        ],
        right=numbers,
        colours=_colours(rows) if is_coloured else None,
    )
    same = _unchanged(plan, rows)
    if same:
        lines.append(f"Entities that stay as they are: {same:,}.")
    return lines


def _colours(rows: Iterable[EntityChanges]) -> dict[tuple[int, int], str]:
    """Return the colour of each word in the column "change", which is the second."""
    return {
        (number, 1): _COLOURS[row.fate]
        for number, row in enumerate(rows, start=1)
        if row.name != SHARED
    }


def _number(count: int) -> str:
    return f"{count:,}" if count else ""


def _at_stake(queues: Iterable[str], plan: Plan) -> str:
    """Return the number of messages in queues; streams repeat what is in the queues."""
    known = [plan.messages.get(queue) for queue in queues if not queue.endswith(_STREAMS)]
    if any(each is None for each in known):
        return "not known"
    return f"{sum(each for each in known if each is not None):,}" if known else ""


def _unchanged(plan: Plan, rows: Iterable[EntityChanges]) -> int:
    """Return the number of entities that the plan leaves as they are."""
    there = {_entity(winner.queue) for winner in plan.winners}
    return len(there - {SHARED} - {row.name for row in rows})


def _note_definition(row: EntityChanges, change: Change) -> None:
    """Take over what a definition says: the path, whether it is new or goes, what differs."""
    assert isinstance(change.resource, Parameter)
    if row.name == SHARED:
        return
    row.path = _path(change.resource) or row.path
    row.fate = change.action
    if change.action is Action.UPDATE:
        old, new = _fields(change.live), _fields(change.resource)
        row.properties = tuple(
            key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)
        )


def _path(definition: Parameter) -> str:
    """Return Service Bus's path of the entity that a definition is of; "" for a malformed one."""
    with suppress(ServiceBusError):
        return definitions.from_json(definition.value).path
    return ""


def _fields(parameter: Resource | None) -> dict[str, Value]:
    value = parameter.value if isinstance(parameter, Parameter) else None
    return value if isinstance(value, dict) else {}


def _is_front(resource: Resource) -> bool:
    """Whether an entity is there exactly if this object is: its queue, or a topic's exchange."""
    return isinstance(resource, Queue | Exchange) and _base(resource) == resource.name


def _base(resource: Resource) -> str:
    """Return the RabbitMQ name of the entity that an object belongs to; `SHARED` for none."""
    match resource:
        case Exchange() | Queue():
            return _entity(resource.name)
        case Binding():
            source, destination = _entity(resource.source), _entity(resource.destination)
            is_below = destination.lower().startswith(source.lower() + SUBSCRIPTIONS)
            return destination if source == SHARED or is_below else source
        case Shovel():
            return _entity(str(resource.value.get("src-queue", "")) or SHARED)
        case Parameter() if not resource.name.startswith(definitions.PREFIX):
            return SHARED
        case Parameter():
            path = _path(resource)  # the name may be cut
            return resource_base(path) if path else resource.name.partition(":")[2]
        case Policy():
            return SHARED


def _entity(name: str) -> str:
    return SHARED if name.startswith(_SHARED_PREFIX) else entity_of(name)
