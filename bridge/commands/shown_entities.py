"""Entities of a namespace as rows and records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.commands.property_options import field_of, shown_properties
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.filters.text import value_text
from bridge.model.rules import CORRELATION_FIELDS

if TYPE_CHECKING:
    from bridge.remote.entity import RemoteEntity

COLUMNS = ("path", "kind", "active", "dead_letter", "scheduled", "size_bytes", "status")
"""What a table of entities shows."""

ALARMING = ("dead_letter", "transfer_dead_letter")


def row(entity: RemoteEntity) -> dict[str, object]:
    """Return an entity with the counts of its messages."""
    counts = entity.counts
    return {
        "path": entity.path,
        "kind": entity.kind.lower(),
        "active": counts.active,
        "dead_letter": counts.dead_letter,
        "scheduled": counts.scheduled,
        "transfer": counts.transfer,
        "transfer_dead_letter": counts.transfer_dead_letter,
        "size_bytes": counts.size_bytes,
        "status": entity.status,
    }


def record(entity: RemoteEntity) -> dict[str, object]:
    """Return all that is known of an entity or a rule; of its shared access rules no keys."""
    times = _times(entity)
    if entity.kind == "Rule":
        return {"path": entity.path, "kind": "rule", **shown_rule(entity)}
    properties = shown_properties(entity.properties)
    properties.pop("status", None)
    shown = row(entity) | properties | times
    if entity.access_rules:
        shown["access_rules"] = [
            {"name": rule.name, "rights": list(rule.rights)} for rule in entity.access_rules
        ]
    return shown


def rule_row(entity: RemoteEntity) -> dict[str, object]:
    """Return a rule for a table."""
    try:
        rule = entity.rule
    except ServiceBusError as error:
        return {"name": entity.name, "filter": str(error), "action": ""}
    return {"name": entity.name, "filter": filter_text(rule.filter), "action": rule.action}


def shown_rule(entity: RemoteEntity) -> dict[str, object]:
    """Return the filter and the action of a rule, and its times."""
    try:
        rule = entity.rule
    except ServiceBusError as error:
        return {"filter": None, "unreadable": str(error)}
    action = {"action": rule.action} if rule.action else {}
    parameters = {"action_parameters": _values(rule.action_parameters)}
    return {
        "filter": _filter(rule.filter),
        **action,
        **(parameters if rule.action_parameters else {}),
        **_times(entity),
    }


def _times(entity: RemoteEntity) -> dict[str, object]:
    return {
        field_of(name): text
        for name in ("CreatedAt", "UpdatedAt", "AccessedAt")
        if (text := entity.time(name))
    }


def filter_text(given: model.Filter) -> str:
    """Return a filter as people write it."""
    match given:
        case model.TrueFilter():
            return "1=1"
        case model.FalseFilter():
            return "1=0"
        case model.SqlFilter():
            return given.expression
    parts = [
        (name, value)
        for name, field in CORRELATION_FIELDS.items()
        if (value := getattr(given, field)) is not None
    ]
    parts += given.properties
    return "correlation: " + ", ".join(f"{name} = {value_text(value)}" for name, value in parts)


def _filter(given: model.Filter) -> dict[str, object]:
    match given:
        case model.TrueFilter():
            return {"kind": "true"}
        case model.FalseFilter():
            return {"kind": "false"}
        case model.SqlFilter():
            shown: dict[str, object] = {"kind": "sql", "expression": given.expression}
            return shown | ({"parameters": _values(given.parameters)} if given.parameters else {})
    fields = {
        field: getattr(given, field)
        for field in CORRELATION_FIELDS.values()
        if getattr(given, field) is not None
    }
    properties = {"properties": _values(given.properties)} if given.properties else {}
    return {"kind": "correlation", **fields, **properties}


def _values(pairs: tuple[tuple[str, object], ...]) -> dict[str, object]:
    """Return values as JSON has them; what JSON has no form for is a text."""
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in pairs
    }
