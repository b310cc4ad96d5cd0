"""Rules as Azure's formats describe them: the names of fields, typed values, and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from bridge.model import entity as model
from bridge.model import values

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
        case "int" | "long":
            return values.int64(text)
        case "boolean":
            return values.boolean(text)
        case "double" | "float" | "decimal":
            return float(text)
        case "dateTime":
            return datetime.fromisoformat(text.strip())
        case "duration":
            return timedelta(milliseconds=values.duration_ms(text))
    raise ValueError("known types are string, int, long, boolean, double, dateTime and duration")
