"""Rules of subscriptions in their descriptions: filters and actions, both ways."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import assert_never

from bridge.model import entity as model
from bridge.model.decimals import text_of
from bridge.model.duration import MAX_MS, format_duration, format_ticks, is_forever
from bridge.model.rule_values import Whole, rule_time_text, ticks_of
from bridge.model.rules import CORRELATION_FIELDS, correlation, is_int, sql, typed_value
from bridge.wire.atom.errors import DescriptionError
from bridge.wire.atom.writing import SCHEMA, XmlElement, typed
from bridge.wire.atom.xml import Element

Parameters = tuple[tuple[str, object], ...]
"""By `@name`, in order."""


def read_filter(found: Element | None) -> model.Filter | None:
    """Return the filter of a `Filter` element; without an element, the filter that takes all.

    `None` stands for a SQL filter without an expression.

    Raises:
        DescriptionError: the type of the filter or of a value is not known.
    """
    if found is None:
        return model.TrueFilter()
    match found.type:
        case "TrueFilter":
            return model.TrueFilter()
        case "FalseFilter":
            return model.FalseFilter()
        case "CorrelationFilter":
            fields = {field: found.raw_of(field) for field in CORRELATION_FIELDS}
            return correlation(fields, dict(_typed_values(found.find("Properties"))))
        case "SqlFilter":
            expression = found.raw_of("SqlExpression")
            return sql(expression, _parameters(found)) if expression else None
    raise DescriptionError(
        found,
        f"its filter is of the type {found.type!r}.",
        "It is TrueFilter, FalseFilter, SqlFilter or CorrelationFilter.",
    )


def read_action(found: Element | None) -> tuple[str, Parameters]:
    """Return expression ("" for none) and parameters of an `Action` element.

    Raises:
        DescriptionError: a parameter is of an unknown type, or its text is none of its type.
    """
    return (found.raw_of("SqlExpression"), _parameters(found)) if found else ("", ())


def _parameters(found: Element) -> Parameters:
    return tuple(dict(_typed_values(found.find("Parameters"))).items())


def _typed_values(parent: Element | None) -> Iterator[tuple[str, object]]:
    for pair in parent.children if parent else []:
        value = pair.find("Value")
        if value is None:
            continue
        key, kind = pair.text_of("Key"), value.type or "string"
        try:
            yield key, typed_value(kind, value.text)
        except ValueError as error:
            message = f"the value {value.text!r} of {key!r} is no {kind};"
            raise DescriptionError(value, message, f"{error}.") from None


def filter_node(given: model.Filter) -> XmlElement:
    """Return the `Filter` element of a filter."""
    match given:
        case model.TrueFilter():
            return XmlElement("Filter", children=_sql_nodes("1=1"), attributes=typed("TrueFilter"))
        case model.FalseFilter():
            return XmlElement("Filter", children=_sql_nodes("1=0"), attributes=typed("FalseFilter"))
        case model.SqlFilter():
            children = _sql_nodes(given.expression, given.parameters)
            return XmlElement("Filter", children=children, attributes=typed("SqlFilter"))
        case model.CorrelationFilter():
            fields = [
                XmlElement(name, getattr(given, field))
                for name, field in CORRELATION_FIELDS.items()
                if getattr(given, field) is not None
            ]
            fields.append(
                XmlElement("Properties", children=tuple(map(_pair_node, given.properties)))
            )
            return XmlElement(
                "Filter", children=tuple(fields), attributes=typed("CorrelationFilter")
            )
        case _:
            assert_never(given)


def action_node(expression: str, parameters: Parameters = ()) -> XmlElement:
    """Return the `Action` element of an expression with parameters."""
    if not expression:
        return XmlElement("Action", attributes=typed("EmptyRuleAction"))
    return XmlElement(
        "Action", children=_sql_nodes(expression, parameters), attributes=typed("SqlRuleAction")
    )


def _sql_nodes(text: str, parameters: Parameters = ()) -> tuple[XmlElement, ...]:
    given = XmlElement("Parameters", children=tuple(map(_pair_node, parameters)))
    nodes = (XmlElement("SqlExpression", text), XmlElement("CompatibilityLevel", "20"))
    return (*nodes, given) if parameters else nodes


def _pair_node(pair: tuple[str, object]) -> XmlElement:
    kind, text = _typed_text(pair[1])
    attributes = {**typed(f"d6p1:{kind}"), "xmlns:d6p1": SCHEMA}
    value = XmlElement("Value", text, attributes=attributes)
    return XmlElement("KeyValueOfstringanyType", children=(XmlElement("Key", pair[0]), value))


def _typed_text(value: object) -> tuple[str, str]:
    """Return the schema type and the text of a value of a filter."""
    match value:
        case bool():
            return "boolean", "true" if value else "false"
        case int():
            is_long = isinstance(value, Whole) and value.kind == "long"
            return ("int" if is_int(value) and not is_long else "long"), str(int(value))
        case float():
            return "double", repr(value) if math.isfinite(value) else _special(value)
        case datetime():
            return "dateTime", rule_time_text(value)
        case timedelta():
            return "duration", _span_text(value)
        case Decimal():
            return "decimal", text_of(value)
        case _:
            return "string", str(value)


def _span_text(value: timedelta) -> str:
    """Return a span, to its seventh digit; the longest one as Service Bus writes it."""
    ticks = ticks_of(value)
    span_ms = ticks // 10_000
    return (
        format_duration(span_ms)
        if is_forever(span_ms) and span_ms <= MAX_MS
        else format_ticks(ticks)
    )


def _special(value: float) -> str:
    """Return NaN or an infinity as XML Schema writes it."""
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
