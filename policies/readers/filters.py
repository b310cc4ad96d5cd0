"""Rules: from the filters and actions that every format has to the model's values."""

from __future__ import annotations

from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.model.filters.errors import CommentInRule, InvalidRule
from bridge.model.filters.mismatches import mismatches
from bridge.model.filters.rules import check_rule
from bridge.model.rules import CORRELATION_FIELDS, EXPRESSION_LENGTH_MAX, correlation, sql
from policies.errors import Position
from policies.readers.draft import EntityDraft

__all__ = ["CORRELATION_FIELDS", "add_rule", "correlation", "sql"]


def add_rule(
    draft: EntityDraft,
    name: str,
    found: model.Filter | None,
    action: str,
    place: Position,
    parameters: tuple[tuple[str, object], ...] = (),
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
        rule = model.Rule(name=name, filter=found, action=action, action_parameters=parameters)
    except ServiceBusError as error:
        draft.notes.fault(place, f"{where}: {error}", "Rename the rule.")
        return
    try:
        check_rule(rule)
    except CommentInRule as error:
        draft.notes.finding(
            place,
            draft.path,
            "Rules",
            f"rule {name!r}, which Service Bus refuses: {error} A bridge reads a minus of a minus.",
            grade="approximate",
        )
    except InvalidRule as error:
        draft.notes.finding(
            place,
            draft.path,
            "Rules",
            f"rule {name!r} can take no message, each one fails it: {error}",
        )
    else:
        for mismatch in mismatches(rule):
            draft.notes.finding(
                place,
                draft.path,
                "Rules",
                f"rule {name!r} has a part that no message satisfies: {mismatch}",
                grade="approximate",
            )
    draft.add_rule(rule, place)
