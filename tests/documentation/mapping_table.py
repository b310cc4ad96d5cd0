"""The tables of the documentation: of properties, made from `mapping`, and of `versions`."""

from __future__ import annotations

from bridge.model.properties import EntityKind
from bridge.topology.capabilities import Capabilities
from policies import mapping, versions
from policies.grade import Case, Flavour
from policies.report import TARGETS
from policies.row import Row

_HEAD = (
    "| Service Bus | of | in RabbitMQ | with the bridge | RabbitMQ alone |\n|---|---|---|---|---|\n"
)


def markdown() -> str:
    """Return the tables."""
    properties = _HEAD + "".join(_line(row) for row in mapping.ROWS)
    return f"{properties}\nBy version of RabbitMQ:\n\n{_versions()}"


def _versions() -> str:
    """Return the facts of the versions that were measured."""
    found = [versions.facts(Capabilities.of(version)) for version in TARGETS]
    head = f"| RabbitMQ | {' | '.join(TARGETS)} |\n|{'---|' * (len(TARGETS) + 1)}\n"
    rows = (f"| {title} | {' | '.join(each[title] for each in found)} |\n" for title in found[0])
    return head + "".join(rows)


def _line(row: Row) -> str:
    kinds = (
        ", ".join(kind.value.lower() for kind in EntityKind if kind in row.kinds()) or "namespace"
    )
    cells = [_cases(row, flavour) for flavour in (Flavour.BRIDGE, Flavour.PLAIN)]
    return f"| {row.property} | {kinds} | {row.rabbitmq} | {' | '.join(cells)} |\n"


def _cases(row: Row, flavour: Flavour) -> str:
    return "<br>".join(_case(each) for each in row.cases(flavour))


def _case(case: Case) -> str:
    text = f"**{case.grade.value}**" + (f": {case.note}" if case.note else "")
    return f"{case.when}: {text}" if case.when else text
