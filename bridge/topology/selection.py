"""Rules of a subscription as bindings of a headers exchange, where RabbitMQ can express them.

A headers exchange compares application headers, with their types. It sees no other property of a
message and evaluates no expression.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import assert_never

from bridge.model import entity as model
from bridge.model.rules import CORRELATION_FIELDS
from bridge.topology.capabilities import Capabilities
from bridge.topology.resources import Value

_TAKES_ALL = re.compile(r"\s*(?:1\s*=\s*1|true)\s*", re.IGNORECASE)
_TAKES_NONE = re.compile(r"\s*(?:1\s*=\s*0|0\s*=\s*1|false)\s*", re.IGNORECASE)

EVERYTHING: dict[str, Value] = {"x-match": "all-with-x"}
"""Binding arguments that match every message: they contain no condition."""


def selection(rule: model.Rule, capabilities: Capabilities) -> tuple[dict[str, Value] | None, str]:
    """Return the binding arguments of a rule, and what RabbitMQ cannot do of it ("" for nothing).

    The arguments are None for no binding: the rule matches no message, or RabbitMQ cannot express
    it.
    """
    arguments, reason = _filter(rule.filter, capabilities)
    if arguments is not None and rule.action.strip():
        reason = f"its action {rule.action!r} is not run"
    return arguments, reason


def _filter(given: model.Filter, capabilities: Capabilities) -> tuple[dict[str, Value] | None, str]:
    match given:
        case model.TrueFilter():
            return EVERYTHING, ""
        case model.FalseFilter():
            return None, ""
        case model.SqlFilter():
            if _TAKES_ALL.fullmatch(given.expression):
                return EVERYTHING, ""
            if _TAKES_NONE.fullmatch(given.expression):
                return None, ""
            return None, f"RabbitMQ has no SQL filter, nothing is bound for {given.expression!r}"
        case model.CorrelationFilter():
            return _correlation(given, capabilities)
        case _:
            assert_never(given)


def _correlation(
    given: model.CorrelationFilter, capabilities: Capabilities
) -> tuple[dict[str, Value] | None, str]:
    system = [
        title for title, field in CORRELATION_FIELDS.items() if getattr(given, field) is not None
    ]
    if system:
        return None, f"a headers exchange does not see {' and '.join(system)}, nothing is bound"
    arguments = dict(EVERYTHING)
    for name, value in given.properties:
        if isinstance(value, bool | int | str) and name not in EVERYTHING:
            arguments[name] = value
            continue
        kind = "date" if isinstance(value, datetime) else type(value).__name__
        return None, f"{capabilities} compares no {kind} such as {name!r}, nothing is bound"
    return arguments, ""
