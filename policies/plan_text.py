"""A plan as text for people, coloured for terminals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from bridge.topology.diff import Action, Change
from bridge.topology.resources import (
    Binding,
    Exchange,
    Parameter,
    Policy,
    Queue,
    Resource,
    Shovel,
)
from policies import plan_summary
from policies.plan import Plan, Winner

_MARKS = {
    Action.CREATE: ("+", "32"),
    Action.UPDATE: ("~", "33"),
    Action.DELETE: ("-", "31"),
    Action.CONFLICT: ("!", "1;31"),
}


def text(plan: Plan, *, is_coloured: bool = False, shows_queues: bool = False) -> str:
    """Return the plan: a row for each entity, then one line a change; the last line has the counts.

    Args:
        shows_queues: list the policies in force on every queue, not only on those with wrong ones.
    """
    steps = [line for change in plan.changes for line in _step(change, plan)]
    lines = plan_summary.table(plan, is_coloured=is_coloured)
    lines += [""] if lines else []
    lines += [_painted(line, colour) if is_coloured else line for line, colour in steps]
    shown = plan.winners if shows_queues else plan.overridden
    if shown:
        lines += [
            "",
            "Policies in force afterwards:",
            *(winner_line(winner, plan) for winner in shown),
        ]
    if plan.notes:
        lines += ["", "Messages that are queued already:", *(f"  {n}" for n in plan.notes)]
    lines += [""] if lines else []
    return "\n".join([*lines, _summary(plan)]) + "\n"


def title(resource: Resource) -> str:
    """Return a resource's kind and name."""
    match resource:
        case Exchange():
            return f"exchange {resource.name} ({resource.type})"
        case Queue():
            return f"queue {resource.name} ({resource.arguments.get('x-queue-type', 'classic')})"
        case Binding():
            given = _reason(resource)
            return f"binding {resource.source} -> {resource.destination}{given}"
        case Policy():
            return f"{'operator policy' if resource.is_operator else 'policy'} {resource.name}"
        case Shovel():
            return f"shovel {resource.name}"
        case Parameter():
            return f"definition {resource.name}"


def _reason(binding: Binding) -> str:
    given = [f"{k}={v}" for k, v in binding.arguments.items() if k != "x-match"]
    return f" [{', '.join(given)}]" if given else ""


def spelled(name: str, plan: Plan) -> str:
    """Return ` of PATH` to follow a RabbitMQ name that Service Bus spells otherwise, else ""."""
    path = plan.entity(name)
    return f" of {path}" if path else ""


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 step`, `1,204 steps`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def stakes(change: Change, plan: Plan) -> list[str]:
    """Return a line for each queue whose messages are at stake, with their number."""
    return [
        f"{name}{spelled(name, plan)}: "
        + (f"{plan.messages[name]:,}" if name in plan.messages else "not known how many")
        for name in change.stakes
    ]


def name_of(resource: Resource) -> str:
    """Return the name of a resource; for a binding, the name of its source exchange."""
    return resource.source if isinstance(resource, Binding) else resource.name


def _step(change: Change, plan: Plan) -> list[tuple[str, str]]:
    mark, colour = _MARKS[change.action]
    reason = f": {change.reason}" if change.reason else ""
    warning = " (destructive)" if change.is_destructive else ""
    what = f"{title(change.resource)}{spelled(name_of(change.resource), plan)}"
    lines = [(f"{mark} {what}{warning}{reason}", colour)]
    lines += [(f"    messages at stake in {each}", "31") for each in stakes(change, plan)]
    if change.action is Action.UPDATE:
        old, new = settings_of(change.live), settings_of(change.resource)
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                lines += [(f"    - {key}: {old[key]}", "31")] if key in old else []
                lines += [(f"    + {key}: {new[key]}", "32")] if key in new else []
    return lines


def settings_of(resource: Resource | None) -> dict[str, str]:
    """Return the settings of a resource that an update may change; secrets are never shown."""
    match resource:
        case Policy():
            settings = {key: json.dumps(value) for key, value in resource.definition.items()}
            about = {"pattern": resource.pattern, "priority": str(resource.priority)}
            return settings | about | {"apply-to": resource.apply_to}
        case Shovel():
            return {
                key: "(not shown)" if key.endswith("-uri") else json.dumps(value)
                for key, value in resource.value.items()
            }
        case Parameter() if isinstance(resource.value, dict):
            hidden = {"authorizationRules": "(access rules, not shown)"}
            return {
                key: hidden.get(key, json.dumps(value)) for key, value in resource.value.items()
            }
        case _:
            return {}


def winner_line(winner: Winner, plan: Plan) -> str:
    """Return a line with the policies in force on a queue, and the wanted ones if others."""
    queue = winner.queue + spelled(winner.queue, plan)
    given = _names(winner.policies, winner.operators)
    if winner.is_right:
        return f"  {queue}: {given}"
    wanted = () if winner.wanted is None else (winner.wanted,)
    ceiling = () if winner.ceiling is None else (winner.ceiling,)
    return f"  {queue}: {given} instead of {_names(wanted, ceiling)}"


def _names(policies: Sequence[Policy], operators: Sequence[Policy]) -> str:
    given = [" or ".join(f"{p.name} (priority {p.priority})" for p in policies) or "none"]
    if operators:
        names = " or ".join(f"{p.name} (priority {p.priority})" for p in operators)
        given.append(f"operator policy {names}")
    return " and ".join(given)


def _summary(plan: Plan) -> str:
    lost = f" {counted(plan.losses, 'loss', 'losses')}." if plan.losses else ""
    if plan.is_empty:
        return "Nothing to change." + lost
    counts = Counter(change.action for change in plan.changes)
    parts = [f"{counts[action]} to {action.value}" for action in Action if counts[action]]
    parts += [f"{len(plan.destructive)} of them destructive"] if plan.destructive else []
    if plan.overridden:
        parts.append(f"{counted(len(plan.overridden), 'queue')} under other policies")
    return ", ".join(parts) + "." + lost


def _painted(line: str, colour: str) -> str:
    return f"\x1b[{colour}m{line}\x1b[0m"
