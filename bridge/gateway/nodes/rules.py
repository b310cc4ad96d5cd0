"""Rules of subscriptions in `$management`: maps for adding rules, lists for showing rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bridge.model import entity as model
from bridge.model.errors import ArgumentError
from bridge.model.rules import CORRELATION_FIELDS, correlation, sql
from bridge.wire.amqp10.types import Described, Int, Ulong
from bridge.wire.management_rules import (
    CORRELATION_FILTER,
    CORRELATION_KEYS,
    EMPTY_ACTION,
    FALSE_FILTER,
    RULE,
    SQL_ACTION,
    SQL_FILTER,
    TRUE_FILTER,
)
from bridge.wire.rule_values import amqp_value, rule_value

Body = dict[str, Any]

_COMPATIBILITY_LEVEL = Int(20)


def read_rule(body: Body, made_at: str) -> model.Rule:
    """Return the rule that an add-rule request describes.

    Args:
        made_at: the time at which it is made, as text.

    Raises:
        ArgumentError: a field is missing or of another type, or the name is invalid.
    """
    description = _map(body, "rule-description")
    action = description.get("sql-rule-action")
    return model.Rule(
        name=read_name(body),
        filter=_filter(description),
        action="" if action is None else _expression(description, "sql-rule-action"),
        created_at=made_at,
    )


def read_name(body: Body) -> str:
    """Return the name of a request's rule; raises ArgumentError."""
    name = body.get("rule-name")
    if not isinstance(name, str) or not name:
        raise ArgumentError("'rule-name' must be a string.")
    return str(name)


def _map(body: Body, key: str) -> Body:
    value = body.get(key)
    if not isinstance(value, dict):
        raise ArgumentError(f"{key!r} must be a map.")
    return value


def _expression(description: Body, key: str) -> str:
    text = _map(description, key).get("expression")
    if not isinstance(text, str):
        raise ArgumentError(f"'expression' of {key!r} must be a string.")
    return str(text)


def _filter(description: Body) -> model.Filter:
    given = [key for key in ("sql-filter", "correlation-filter") if description.get(key)]
    if given == ["sql-filter"]:
        return sql(_expression(description, "sql-filter"))
    if given == ["correlation-filter"]:
        return _correlation(_map(description, "correlation-filter"))
    raise ArgumentError("A rule has either a 'sql-filter' or a 'correlation-filter'.")


def _correlation(given: Body) -> model.CorrelationFilter:
    fields: dict[str, str | None] = {}
    for key, name in CORRELATION_KEYS.items():
        value = given.get(key)
        if value is not None and not isinstance(value, str):
            raise ArgumentError(f"{key!r} of a correlation filter must be a string.")
        fields[name] = None if value is None else str(value)
    properties = given.get("properties") or {}
    if not isinstance(properties, dict) or not all(isinstance(key, str) for key in properties):
        raise ArgumentError("'properties' of a correlation filter must be a map with string keys.")
    return correlation(fields, {str(key): rule_value(each) for key, each in properties.items()})


def shown(subscription: model.Subscription, skip: int, top: int) -> list[Body]:
    """Return rules of a subscription, by name, in the form of an enumerate-rules reply."""
    return [
        {"rule-description": _rule(each, _time(each.created_at or subscription.created_at))}
        for each in subscription.rules_by_name[skip : skip + top]
    ]


def _time(text: str) -> object:
    if not text:
        return None
    return amqp_value(datetime.fromisoformat(text))


def _rule(rule: model.Rule, made: object) -> Described:
    return _described(
        RULE, [_shown_filter(rule.filter), _shown_action(rule.action), rule.name, made]
    )


def _described(code: int, items: Sequence[Any]) -> Described:
    return Described(Ulong(code), list(items))


def _shown_action(expression: str) -> Described:
    if not expression:
        return _described(EMPTY_ACTION, [])
    return _described(SQL_ACTION, [expression, _COMPATIBILITY_LEVEL])


def _shown_filter(given: model.Filter) -> Described:
    match given:
        case model.TrueFilter():
            return _described(TRUE_FILTER, ["1=1", _COMPATIBILITY_LEVEL])
        case model.FalseFilter():
            return _described(FALSE_FILTER, ["1=0", _COMPATIBILITY_LEVEL])
        case model.SqlFilter():
            return _described(SQL_FILTER, [given.expression, _COMPATIBILITY_LEVEL])
        case model.CorrelationFilter():
            fields = [
                getattr(given, CORRELATION_FIELDS[name]) for name in CORRELATION_KEYS.values()
            ]
            values = {name: amqp_value(each) for name, each in given.properties}
            return _described(CORRELATION_FILTER, [*fields, values])
