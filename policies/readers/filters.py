"""Rules: filters and actions as every format describes them, as the model's values."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from policies.errors import Place
from policies.readers.draft import EntityDraft

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
"""Azure's names of the fields that a correlation filter compares, and the model's."""

EXPRESSION_LENGTH_MAX = 1024
"""Characters of a filter or action (Service Bus quotas)."""


def sql(expression: str, parameters: tuple[tuple[str, object], ...] = ()) -> model.Filter:
    """Return a SQL filter; `1=1` and `1=0` are what Service Bus calls True and False filter."""
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


def add_rule(
    draft: EntityDraft, name: str, found: model.Filter | None, action: str, place: Place
) -> None:
    """Add a rule to a subscription's draft, or note why Service Bus would refuse it."""
    where = f"{draft.title}, rule {name!r}"
    if found is None:
        draft.notes.fault(
            place, f"{where} has no filter.", "Give it a SQL or a correlation filter."
        )
        return
    if found == model.CorrelationFilter():
        draft.notes.fault(
            place,
            f"{where}: its correlation filter is empty.",
            "Name at least one field or property, or use the SQL filter 1=1.",
        )
        return
    expression = found.expression if isinstance(found, model.SqlFilter) else ""
    for what, text in (("filter", expression), ("action", action)):
        if len(text) > EXPRESSION_LENGTH_MAX:
            draft.notes.fault(
                place,
                f"{where}: its {what} has {len(text)} characters; Service Bus takes "
                f"{EXPRESSION_LENGTH_MAX}.",
                "Split the rule.",
            )
            return
    try:
        rule = model.Rule(name=name, filter=found, action=action)
    except ServiceBusError as error:
        draft.notes.fault(place, f"{where}: {error}", "Rename the rule.")
        return
    draft.add_rule(rule, place)
