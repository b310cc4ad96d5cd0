"""The loss report: each property of each entity, and how well a target does it.

`make` grades a reading on every wanted combination of flavour and RabbitMQ version. `to_json`
writes the report for scripts, `report_table.table` for people. All commands take their losses from
this report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from bridge.model import entity as model
from bridge.model.duration import format_duration, is_forever
from bridge.model.forwarding import comes_back
from bridge.model.properties import PROPERTIES, kind_of
from bridge.topology.capabilities import Capabilities
from bridge.topology.definitions import entities
from bridge.topology.names import resource_base
from bridge.topology.resources import Finding
from policies import mapping, versions
from policies.grade import Case, Flavour, Grade, Subject, decided
from policies.readers.reading import Reading

SCHEMA = 1
"""Version of the JSON form."""

TARGETS = ("3.10", "4.0", "4.3")
"""The versions that were measured; a report is made for these when none is given."""

Target = tuple[Flavour, str]
"""A flavour and a version of RabbitMQ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedProperty:
    """A property of an entity, graded for every target.

    Attributes:
        entity: the entity's path, or "" for the namespace.
        kind: `Queue`, `Topic`, `Subscription` or `Namespace`.
        name: Azure's name of the property, or `Rule` and a rule's name.
        value: as Service Bus writes it.
    """

    entity: str
    kind: str
    name: str
    value: str
    grades: dict[Target, Case]

    @property
    def rabbitmq_name(self) -> str:
        """The RabbitMQ name that the entity's objects begin with when the bridge runs."""
        return resource_base(self.entity) if self.entity else ""

    @property
    def worst(self) -> Grade:
        """The worst grade of any target."""
        return max((case.grade for case in self.grades.values()), key=lambda grade: grade.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The grades of all properties, and the findings of the reader.

    Attributes:
        findings: parts of the input that could not be taken over, on any target.
    """

    namespace: str
    targets: tuple[Target, ...]
    entries: tuple[GradedProperty, ...]
    findings: tuple[Finding, ...] = ()

    def count(self, target: Target, grade: Grade) -> int:
        """Return the number of properties and findings that have a grade on a target."""
        if grade is Grade.LOST:
            return len(self.losses(target))
        grades = [entry.grades[target].grade.value for entry in self.entries]
        return [*grades, *(each.grade for each in self.findings)].count(grade.value)

    def losses(self, target: Target) -> tuple[Finding, ...]:
        """Return the losses of properties and of findings on a target, each once."""
        found = [
            Finding(
                entity=entry.entity,
                property=entry.name,
                grade=Grade.LOST.value,
                message=entry.grades[target].note,
            )
            for entry in self.entries
            if entry.grades[target].grade is Grade.LOST
        ]
        found += [each for each in self.findings if each.grade == Grade.LOST.value]
        return tuple(dict.fromkeys(found))


def make(
    reading: Reading,
    *,
    flavours: Sequence[Flavour] = tuple(Flavour),
    versions: Sequence[str] = TARGETS,
) -> Report:
    """Return the report of a reading.

    Raises:
        UnsupportedVersion: a version is older than 3.10, or is no version.
    """
    known = {version: Capabilities.of(version) for version in versions}
    targets = [(flavour, version) for flavour in flavours for version in versions]
    namespace = reading.namespace
    entries: list[GradedProperty] = []
    names = frozenset(queue.name.lower() for queue in namespace.queues)
    names |= {topic.name.lower() for topic in namespace.topics}
    for entity in (namespace, *entities(namespace)):
        returns = isinstance(entity, model.Queue | model.Subscription) and comes_back(
            entity, namespace
        )
        entries += _entries(entity, targets, known, names, returns)
    return Report(
        namespace=namespace.name,
        targets=tuple(targets),
        entries=tuple(entries),
        findings=reading.findings,
    )


def to_json(report: Report) -> str:
    """Return the report for scripts; the same report gives the same bytes."""
    form = {
        "schema": SCHEMA,
        "namespace": report.namespace,
        "targets": [_name(target) for target in report.targets],
        "versions": {
            version: versions.facts(Capabilities.of(version))
            for version in dict.fromkeys(version for _, version in report.targets)
        },
        "counts": {
            _name(target): {grade.value: report.count(target, grade) for grade in Grade}
            for target in report.targets
        },
        "entries": [
            {
                "entity": entry.entity,
                "rabbitmqName": entry.rabbitmq_name,
                "kind": entry.kind,
                "property": entry.name,
                "value": entry.value,
                "grades": {
                    _name(target): {"grade": case.grade.value, "note": case.note}
                    for target, case in entry.grades.items()
                },
            }
            for entry in report.entries
        ],
        "findings": [_finding(each) for each in report.findings],
        "losses": {
            _name(target): [_finding(each) for each in report.losses(target)]
            for target in report.targets
        },
    }
    return json.dumps(form, indent=2, ensure_ascii=False) + "\n"


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "entity": finding.entity,
        "property": finding.property,
        "grade": finding.grade,
        "message": finding.message,
    }


def _entries(
    entity: model.Namespace | model.Entity,
    targets: Sequence[Target],
    known: dict[str, Capabilities],
    names: frozenset[str],
    returns: bool,
) -> Iterator[GradedProperty]:
    kind, path = None, ""
    if not isinstance(entity, model.Namespace):
        kind, path = kind_of(entity), entity.path
    for row in mapping.ROWS:
        if (kind is None and row.kinds()) or (kind is not None and kind not in row.kinds()):
            continue
        for label, value, rule in _values(entity, row.property):
            yield GradedProperty(
                entity=path,
                kind=kind.value if kind else "Namespace",
                name=label,
                value=value,
                grades={
                    (flavour, version): decided(
                        row.cases(flavour),
                        Subject(
                            entity=entity,
                            capabilities=known[version],
                            names=names,
                            comes_back=returns,
                            rule=rule,
                        ),
                    )
                    for flavour, version in targets
                },
            )


def _values(
    entity: model.Namespace | model.Entity, prop: str
) -> Iterator[tuple[str, str, model.Rule | None]]:
    """Yield name, value and rule of a property; of the rules, one item for each."""
    if prop == "Rules" and isinstance(entity, model.Subscription):
        for rule in entity.rules:
            yield f"Rule {rule.name}", _rule_text(rule), rule
        return
    field = PROPERTIES[prop].field if prop in PROPERTIES else _FIELDS[prop]
    yield prop, _text(field, getattr(entity, field)), None


_FIELDS = {
    "AuthorizationRules": "authorization_rules",
    "Subscriptions": "subscriptions",
    "Tier": "tier",
}


def _text(field: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(str(each.name) for each in value)
    if isinstance(value, Enum):
        return str(value.value)
    if field.endswith("_ms") and isinstance(value, int):
        return "for ever" if is_forever(value) else format_duration(value)
    return "(the tier's)" if value is None else str(value)


def _rule_text(rule: model.Rule) -> str:
    match rule.filter:
        case model.SqlFilter(expression=expression):
            text = expression
        case model.TrueFilter():
            text = "1=1"
        case model.FalseFilter():
            text = "1=0"
        case model.CorrelationFilter(properties=properties) as given:
            fields = {
                name: getattr(given, name)
                for name in given.__dataclass_fields__
                if name != "properties" and getattr(given, name) is not None
            }
            text = ", ".join(f"{k} = {v!r}" for k, v in (*fields.items(), *properties))
    return f"{text}; {rule.action}" if rule.action else text


def _name(target: Target) -> str:
    return f"{target[0].value} {target[1]}"
