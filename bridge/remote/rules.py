"""Rules of subscriptions, as `$management` takes and gives them."""

from __future__ import annotations

from typing import Any

from bridge.model import entity as model
from bridge.model.rules import CORRELATION_FIELDS, correlation, sql
from bridge.remote.errors import RemoteRefused
from bridge.wire.amqp10.types import Described
from bridge.wire.management_rules import (
    CORRELATION_FILTER,
    CORRELATION_KEYS,
    FALSE_FILTER,
    RULE,
    SQL_ACTION,
    SQL_FILTER,
    TRUE_FILTER,
)
from bridge.wire.rule_values import amqp_value, rule_value

Body = dict[str, Any]


def add_rule_body(rule: model.Rule) -> Body:
    """Return the body of an `add-rule` request.

    Raises:
        ValueError: the rule has parameters, which `$management` does not take; administration does.
    """
    if rule.action_parameters or getattr(rule.filter, "parameters", ()):
        raise ValueError("A rule with parameters is added by administration, not by $management.")
    description: Body = {"rule-name": rule.name, **_filter(rule.filter)}
    if rule.action:
        description["sql-rule-action"] = {"expression": rule.action}
    return {"rule-name": rule.name, "rule-description": description}


def _filter(given: model.Filter) -> Body:
    match given:
        case model.TrueFilter():
            return {"sql-filter": {"expression": "1=1"}}
        case model.FalseFilter():
            return {"sql-filter": {"expression": "1=0"}}
        case model.SqlFilter():
            return {"sql-filter": {"expression": given.expression}}
        case model.CorrelationFilter():
            found: Body = {
                key: getattr(given, CORRELATION_FIELDS[name])
                for key, name in CORRELATION_KEYS.items()
                if getattr(given, CORRELATION_FIELDS[name]) is not None
            }
            found["properties"] = {name: amqp_value(each) for name, each in given.properties}
            return {"correlation-filter": found}


def shown_rule(entry: Any) -> model.Rule:
    """Return the rule in an element of an `enumerate-rules` reply.

    Raises:
        RemoteRefused: it is none that this client knows.
    """
    description = entry.get("rule-description") if isinstance(entry, dict) else None
    filter_, action, name, *_ = _items(description, RULE)
    if not isinstance(name, str):
        raise _unknown(entry)
    return model.Rule(name=str(name), filter=_shown_filter(filter_), action=_shown_action(action))


def _items(value: Any, code: int) -> list[Any]:
    if not isinstance(value, Described) or value.descriptor != code:
        raise _unknown(value)
    found = list(value.value) if isinstance(value.value, list) else []
    return found + [None] * 10


def _shown_action(value: Any) -> str:
    if isinstance(value, Described) and value.descriptor == SQL_ACTION:
        return str(_items(value, SQL_ACTION)[0] or "")
    return ""


def _shown_filter(value: Any) -> model.Filter:
    code = value.descriptor if isinstance(value, Described) else None
    if code == TRUE_FILTER:
        return model.TrueFilter()
    if code == FALSE_FILTER:
        return model.FalseFilter()
    if code == SQL_FILTER:
        return sql(str(_items(value, SQL_FILTER)[0]))
    if code == CORRELATION_FILTER:
        items = _items(value, CORRELATION_FILTER)
        texts = dict(zip(CORRELATION_KEYS.values(), items, strict=False))
        values = items[len(CORRELATION_KEYS)] or {}
        return correlation(
            {name: None if each is None else str(each) for name, each in texts.items()},
            {str(name): rule_value(each) for name, each in values.items()},
        )
    raise _unknown(value)


def _unknown(value: Any) -> RemoteRefused:
    return RemoteRefused("amqp:not-implemented", f"{value!r} is no rule that this client knows.")
