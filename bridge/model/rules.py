"""Rules as Azure's formats describe them: the names of fields, typed values, and quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal, InvalidOperation

from bridge.model import entity as model
from bridge.model import values
from bridge.model.decimals import fit
from bridge.model.duration import MAX_MS
from bridge.model.rule_values import Span, Whole, read_time

CORRELATION_FIELDS = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "label",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}
"""Azure's names of a correlation filter's fields, and the model's names."""

EXPRESSION_LENGTH_MAX = 1024
"""Characters of a filter or action (Service Bus quotas)."""


def sql(expression: str, parameters: tuple[tuple[str, object], ...] = ()) -> model.Filter:
    """Return a SQL filter; Service Bus calls `1=1` and `1=0` True and False filter."""
    match "".join(expression.split()):
        case "1=1":
            return model.TrueFilter()
        case "1=0":
            return model.FalseFilter()
    return model.SqlFilter(expression=expression, parameters=parameters)


def correlation(
    fields: Mapping[str, str | None], properties: Mapping[str, object]
) -> model.CorrelationFilter:
    """Return a correlation filter from Azure's field names; empty fields mean 'any'."""
    given = {CORRELATION_FIELDS[name]: value for name, value in fields.items() if value}
    return model.CorrelationFilter(**given, properties=tuple(properties.items()))


def typed_value(kind: str, text: str) -> object:
    """Return the value of a text in a schema type of Service Bus.

    A time without a zone has none: it is read back so, and compared as UTC.

    Raises:
        ValueError: the text is no value of the type; the message says what the type takes.
    """
    match kind:
        case "string":
            return text
        case "int":
            return values.int64(text)
        case "long":
            number = values.int64(text)
            return Whole(number, "long") if is_int(number) else number
        case "boolean":
            return values.boolean(text)
        case "double" | "float":
            return float(text)
        case "decimal":
            return _decimal(text)
        case "dateTime":
            return read_time(text)
        case "duration":
            return _span(text.strip())
    raise ValueError(
        "known types are string, int, long, boolean, double, decimal, dateTime and duration"
    )


def is_int(number: int) -> bool:
    """Whether a whole number fits an int of 32 bits."""
    return -(2**31) <= number < 2**31


def _decimal(text: str) -> Decimal:
    try:
        found = fit(Decimal(text.strip()))
    except InvalidOperation:
        found = None
    if found is None:
        raise ValueError("it is a number of 96 bits with 28 places at most")
    return found


_FRACTION = re.compile(r"\.(\d+)S?$")


def _span(text: str) -> timedelta:
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-")
    span_ms = values.duration_ms(text)
    found = _FRACTION.search(text)
    digits = found[1] if found is not None and span_ms < MAX_MS else ""
    return Span.of_ticks(sign * (span_ms * 10_000 + int(digits.ljust(7, "0")[3:7] or "0")))
