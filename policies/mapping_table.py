"""The tables of the documentation: of properties, made from `mapping`, and of `versions`."""

from __future__ import annotations

from bridge.model.properties import Kind
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
    return f"{properties}\nBy version of RabbitMQ:\n\n{versions.table(TARGETS)}"


def _line(row: Row) -> str:
    kinds = ", ".join(kind.value.lower() for kind in Kind if kind in row.kinds()) or "namespace"
    cells = [_cases(row, flavour) for flavour in (Flavour.BRIDGE, Flavour.PLAIN)]
    return f"| {row.property} | {kinds} | {row.rabbitmq} | {' | '.join(cells)} |\n"


def _cases(row: Row, flavour: Flavour) -> str:
    return "<br>".join(_case(each) for each in row.cases(flavour))


def _case(case: Case) -> str:
    text = f"**{case.grade.value}**" + (f": {case.note}" if case.note else "")
    return f"{case.when}: {text}" if case.when else text
