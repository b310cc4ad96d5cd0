"""Atom documents for the administration API, made from the client's objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from bridge.client.management.properties import AuthorizationRule
from bridge.client.management.rules import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    Filter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from bridge.client.mapping import Mapped
from bridge.model import entity as model
from bridge.model.duration import format_duration
from bridge.wire.atom.client import request_text
from bridge.wire.atom.rules import action_node, filter_node
from bridge.wire.atom.writing import NAMESPACES, XmlElement, typed

ELEMENTS = {"availability_status": "EntityAvailabilityStatus"}
"""Elements whose name is not the property's name in camel case."""


def element_of(name: str) -> str:
    """Return the name of a property's element."""
    return ELEMENTS.get(name) or "".join(word.capitalize() for word in name.split("_"))


def entity_document(root: str, given: Mapped) -> bytes:
    """Return the document of an entity; the service chooses the properties that are `None`."""
    values = ((name, value) for name, value in given.items() if name != "name")
    nodes = [_node(name, value) for name, value in values if value is not None]
    return _entry(root, nodes)


def rule_document(root: str, rule: RuleProperties) -> bytes:
    """Return the document of a rule."""
    action = rule.action or SqlRuleAction()
    nodes = (
        filter_node(_filter(rule.filter)),
        action_node(action.sql_expression or "", _pairs(action.parameters)),
        XmlElement("Name", rule.name),
    )
    return _entry(root, nodes)


def _entry(root: str, nodes: Iterable[XmlElement]) -> bytes:
    return request_text(XmlElement(root, children=tuple(nodes), attributes=NAMESPACES)).encode()


def _node(name: str, value: Any) -> XmlElement:
    if name == "authorization_rules":
        return XmlElement(element_of(name), children=tuple(map(_access_rule, value)))
    return XmlElement(element_of(name), _text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return format_duration(value // timedelta(milliseconds=1))
    return str(getattr(value, "value", value))


def _access_rule(rule: AuthorizationRule) -> XmlElement:
    rights = tuple(XmlElement("AccessRights", _text(right)) for right in rule.rights or ())
    texts = {
        "KeyName": rule.key_name,
        "PrimaryKey": rule.primary_key,
        "SecondaryKey": rule.secondary_key,
    }
    nodes = (XmlElement(name, text) for name, text in texts.items() if text is not None)
    return XmlElement(
        "AuthorizationRule",
        children=(XmlElement("Rights", children=rights), *nodes),
        attributes=typed(rule.type or "SharedAccessAuthorizationRule"),
    )


def _filter(given: Filter | None) -> model.Filter:
    match given:
        case None | TrueRuleFilter():
            return model.TrueFilter()
        case FalseRuleFilter():
            return model.FalseFilter()
        case SqlRuleFilter():
            return model.SqlFilter(
                expression=given.sql_expression or "", parameters=_pairs(given.parameters)
            )
        case CorrelationRuleFilter():
            fields = {
                name: value
                for name, value in vars(given).items()
                if value is not None and name != "properties"
            }
            return model.CorrelationFilter(**fields, properties=_pairs(given.properties))
    raise TypeError(f"{given!r} is no filter of a rule.")


def _pairs(given: Mapping[str, Any] | None) -> tuple[tuple[str, object], ...]:
    return tuple((given or {}).items())
