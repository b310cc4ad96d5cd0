"""A plan as JSON: its changes, for scripts, and the saved form that `apply` carries out later."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bridge.topology.diff import Action, Change
from bridge.topology.resources import (
    Binding,
    Exchange,
    Finding,
    Parameter,
    Policy,
    Queue,
    Shovel,
    Topology,
)
from policies import losses
from policies.errors import Fault, Position, ReadError
from policies.plan import Plan
from policies.plan_text import name_of, settings_of, title

SCHEMA = 1
MARK = "busbridgePlan"
"""The first key of a saved plan, with its schema."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan to be carried out later, and the virtual host that it is for.

    Attributes:
        wanted: the objects that the virtual host shall have.
        before: `fingerprint` of the virtual host when the plan was made.
        keep: see `plan.make`.
        prune: see `plan.make`.
        names: see `Plan`.
        losses: the losses of the input.
    """

    vhost: str
    before: str
    wanted: Topology
    keep: bool
    prune: bool
    names: Mapping[str, str]
    losses: tuple[Finding, ...]


def fingerprint(live: Topology) -> str:
    """Return a digest of all objects of a virtual host; their order does not matter."""
    rows = sorted(
        json.dumps([part, row], sort_keys=True)
        for part, resources in dataclasses.asdict(live).items()
        for row in resources
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def to_json(plan: Plan, lost: Sequence[Finding]) -> str:
    """Return a plan's changes as JSON for scripts; keys of access rules are not shown."""
    form = {
        "schema": SCHEMA,
        "isEmpty": plan.is_empty,
        "counts": {
            **{a.value: sum(c.action is a for c in plan.changes) for a in Action},
            "destructive": len(plan.destructive),
            "overridden": len(plan.overridden),
            "lost": len(lost),
        },
        "changes": [_change(change, plan) for change in plan.changes],
        "overridden": [
            {
                "queue": winner.queue,
                "policies": [each.name for each in (*winner.policies, *winner.operators)],
                "wanted": winner.wanted.name if winner.wanted else None,
            }
            for winner in plan.overridden
        ],
        "notes": list(plan.notes),
        "losses": [{"name": losses.name_of(each), "message": each.message} for each in lost],
    }
    return json.dumps(form, indent=2, ensure_ascii=False) + "\n"


def _change(change: Change, plan: Plan) -> dict[str, object]:
    resource = change.resource
    name = name_of(resource)
    return {
        "action": change.action.value,
        "kind": type(resource).__name__.lower(),
        "name": name,
        "entity": plan.entity(name),
        "title": title(resource),
        "reason": change.reason,
        "isDestructive": change.is_destructive,
        "messagesAtStake": {queue: plan.messages.get(queue) for queue in change.stakes},
        "before": settings_of(change.live),
        "after": {} if change.action is Action.DELETE else settings_of(resource),
    }


def saved(plan: SavedPlan) -> str:
    """Return the text of a plan's file, which holds the keys of access rules."""
    form = {MARK: SCHEMA, **dataclasses.asdict(plan)}
    return json.dumps(form, indent=1, ensure_ascii=False) + "\n"


def is_saved(text: str) -> bool:
    """Whether a text is a saved plan."""
    return text.lstrip().startswith("{") and f'"{MARK}"' in text[:40]


def loaded(text: str, source: str) -> SavedPlan:
    """Return the plan of a file.

    Raises:
        ReadError: the file is no saved plan, or one of another version.
    """
    try:
        form = json.loads(text)
        if form.pop(MARK) != SCHEMA:
            raise ValueError("it is of another version of busbridge")
        return SavedPlan(
            **{
                **form,
                "wanted": _topology(form["wanted"]),
                "losses": _all(Finding, form["losses"]),
            }
        )
    except (ValueError, KeyError, TypeError) as error:
        fault = Fault(
            place=Position(),
            message=f"This is no plan that can be carried out: {error}.",
            remedy="Make it anew with 'busbridge policies plan INPUT --out FILE'.",
        )
        raise ReadError(source, [fault]) from error


def _topology(form: Mapping[str, Any]) -> Topology:
    return Topology(
        exchanges=_all(Exchange, form["exchanges"]),
        queues=_all(Queue, form["queues"]),
        bindings=_all(Binding, form["bindings"]),
        policies=_all(Policy, form["policies"]),
        shovels=_all(Shovel, form["shovels"]),
        parameters=_all(Parameter, form["parameters"]),
        findings=_all(Finding, form["findings"]),
    )


def _all(made: Callable[..., T], rows: Iterable[Mapping[str, Any]]) -> tuple[T, ...]:
    return tuple(made(**row) for row in rows)
