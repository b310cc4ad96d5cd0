"""Answers of the administration API: Atom documents read into the client's objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, TypeVar

from bridge.client.management.errors import of_status
from bridge.client.management.properties import AuthorizationRule, NamespaceProperties, Rules
from bridge.client.management.rules import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    Filter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from bridge.client.management.writing import element_of
from bridge.model import entity as model
from bridge.model.duration import is_forever, parse_duration_ms
from bridge.wire.administration import Response
from bridge.wire.atom.access import read_access_rule
from bridge.wire.atom.client import root_in
from bridge.wire.atom.rules import read_action, read_filter
from bridge.wire.atom.xml import Element

FOR_EVER = timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_581)
"""The longest duration, with the SDK's rounding."""

Described = TypeVar("Described")


def root_of(response: Response) -> Element:
    """Return the document of an answer.

    Raises:
        HttpResponseError: the request was refused.
    """
    root = root_in(response.text)
    if response.status >= 400:
        detail = root.text_of("Detail") or f"The bridge answers {response.status}."
        raise of_status(response.status, detail, response.text)
    return root


def described(made: Callable[..., Described], name: str, found: Element) -> Described:
    """Return the properties of an entity, each read by its type."""
    values: dict[str, Any] = {}
    for each in fields(made):  # type: ignore[arg-type]  # a dataclass
        if each.name == "name":
            continue
        element = _element(found, each.name)
        is_there = element is not None and (
            element.children or element.text.strip() or each.name == "user_metadata"
        )
        values[each.name] = _READERS[str(each.type)](element) if is_there else None
    return made(name=name, **values)


def _element(found: Element, name: str) -> Element | None:
    if name == "total_message_count":
        return found.find("MessageCount")
    if name.endswith("_message_count"):
        return found.find("CountDetails", element_of(name))
    return found.find(element_of(name.removesuffix("_utc")))


def namespace(name: str, found: Element) -> NamespaceProperties:
    """Return the properties of a namespace."""
    units = found.text_of("MessagingUnits")
    return NamespaceProperties(
        name,
        alias=found.text_of("Alias") or None,
        created_at_utc=_time(found.find("CreatedTime")),
        messaging_sku=found.text_of("MessagingSKU") or None,
        messaging_units=int(units) if units else None,
        modified_at_utc=_time(found.find("ModifiedTime")),
        namespace_type=found.text_of("NamespaceType") or None,
    )


def rule(name: str, found: Element) -> RuleProperties:
    """Return a rule."""
    expression, parameters = read_action(found.find("Action"))
    return RuleProperties(
        name,
        filter=_filter(read_filter(found.find("Filter"))),
        action=SqlRuleAction(expression, _values(parameters)) if expression else None,
        created_at_utc=_time(found.find("CreatedAt")),
    )


def _filter(found: model.Filter | None) -> Filter | None:
    match found:
        case model.TrueFilter():
            return TrueRuleFilter()
        case model.FalseFilter():
            return FalseRuleFilter()
        case model.SqlFilter():
            return SqlRuleFilter(found.expression, _values(found.parameters))
        case model.CorrelationFilter():
            named = {each.name for each in fields(CorrelationRuleFilter)} - {"properties"}
            texts = {name: getattr(found, name) for name in named}
            return CorrelationRuleFilter(**texts, properties=_values(found.properties))
    return None


def _values(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return dict(pairs)


def _duration(found: Element) -> timedelta:
    duration_ms = parse_duration_ms(found.text)
    return FOR_EVER if is_forever(duration_ms) else timedelta(milliseconds=duration_ms)


def _time(found: Element | None) -> datetime | None:
    return None if found is None else datetime.fromisoformat(found.text.strip())


def _access_rules(found: Element) -> Rules:
    rules = []
    for element in found.children:
        read = read_access_rule(element)
        rules.append(
            AuthorizationRule(
                type=element.type,
                claim_type=element.text_of("ClaimType"),
                claim_value=element.text_of("ClaimValue"),
                rights=list(read.rights),
                created_at_utc=_time(element.find("CreatedTime")),
                modified_at_utc=_time(element.find("ModifiedTime")),
                key_name=read.name,
                primary_key=read.primary_key,
                secondary_key=read.secondary_key,
            )
        )
    return rules


_READERS: dict[str, Callable[[Any], object]] = {
    "Duration": _duration,
    "Flag": lambda found: found.text.strip().lower() == "true",
    "Count": lambda found: int(found.text),
    "Text": lambda found: found.text,
    "Time": _time,
    "Rules": _access_rules,
}
"""Name of a field's type -> the function that reads the field's element."""
