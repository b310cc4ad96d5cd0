"""A namespace as the emulator's `Config.json`, which `busbridge serve --config` takes as well.

The counterpart of `readers.emulator`. A property without a place in the file is a finding.
"""

from __future__ import annotations

import json

from bridge.model import entity as model
from bridge.model.properties import PROPERTIES, kind_of, names_of
from bridge.topology import definitions
from bridge.topology.fields import written
from bridge.topology.resources import Finding
from policies.grade import Grade
from policies.readers.filters import CORRELATION_FIELDS

_JSON = (bool, int, float, str)
"""Classes of values that Config.json has a type for."""

Json = dict[str, object]


def write(namespace: model.Namespace) -> tuple[str, tuple[Finding, ...]]:
    """Return the file's text, and a finding for each part that has no place in the file."""
    queues = [_entity(queue) for queue in namespace.queues]
    topics = [
        _entity(topic)
        | {
            "Subscriptions": [
                _entity(each) | {"Rules": [_rule(rule) for rule in each.rules]}
                for each in topic.subscriptions
            ]
        }
        for topic in namespace.topics
    ]
    own = {"Name": namespace.name, "Queues": queues, "Topics": topics}
    file = {"UserConfig": {"Namespaces": [own], "Logging": {"Type": "File"}}}
    return json.dumps(file, indent=2, ensure_ascii=False) + "\n", tuple(_lost(namespace))


def properties(entity: model.Entity) -> Json:
    """Return an entity's properties by Azure's names, without the empty ones."""
    found: Json = {}
    for name in names_of(kind_of(entity)):
        field = PROPERTIES[name].field
        value = written(field, getattr(entity, field))
        if value not in (None, ""):
            found[name] = value
    return found


def _entity(entity: model.Entity) -> Json:
    return {"Name": entity.name, "Properties": properties(entity)}


def _rule(rule: model.Rule) -> Json:
    action: Json = {"Action": {"SqlExpression": rule.action}} if rule.action else {}
    match rule.filter:
        case model.CorrelationFilter() as given:
            body: Json = {"FilterType": "Correlation", "CorrelationFilter": correlation(given)}
        case model.SqlFilter(expression=expression):
            body = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}
        case model.TrueFilter():
            body = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}
        case model.FalseFilter():
            body = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=0"}}
    return {"Name": rule.name, "Properties": body | action}


def correlation(given: model.CorrelationFilter) -> Json:
    """Return the fields and properties of a correlation filter by Azure's names."""
    values = {name: getattr(given, field) for name, field in CORRELATION_FIELDS.items()}
    fields: Json = {name: value for name, value in values.items() if value}
    properties = {
        name: value if isinstance(value, _JSON) else str(value) for name, value in given.properties
    }
    return fields | ({"Properties": properties} if properties else {})


def _lost(namespace: model.Namespace) -> list[Finding]:
    found = []
    if namespace.tier is not model.Tier.STANDARD:
        found.append(_finding("", "Tier", f"It is {namespace.tier.value}: give it to the command."))
    for path, rules in (
        ("", namespace.authorization_rules),
        *((each.name, each.authorization_rules) for each in namespace.queues),
        *((each.name, each.authorization_rules) for each in namespace.topics),
    ):
        if rules:
            names = ", ".join(rule.name for rule in rules)
            text = f"Config.json has no place for {names}: use serve's --auth, or definitions."
            found.append(_finding(path, "AuthorizationRules", text))
    for entity in definitions.entities(namespace):
        if isinstance(entity, model.Subscription):
            found += [
                _finding(entity.path, "Rules", f"The parameters of {rule.name!r} are left out.")
                for rule in entity.rules
                if isinstance(rule.filter, model.SqlFilter) and rule.filter.parameters
            ]
            found += [
                _finding(entity.path, "Rules", f"{name!r} of {rule.name!r} becomes text.")
                for rule in entity.rules
                if isinstance(rule.filter, model.CorrelationFilter)
                for name, value in rule.filter.properties
                if not isinstance(value, _JSON)
            ]
    return found


def _finding(entity: str, what: str, message: str) -> Finding:
    return Finding(entity=entity, property=what, grade=Grade.LOST.value, message=message)
