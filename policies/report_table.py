"""The loss report as a table for people: inexact properties, with the differences as footnotes."""

from __future__ import annotations

from policies.columns import aligned
from policies.grade import Case, Flavour, Grade
from policies.report import GradedProperty, Report, Target

_VALUE_WIDTH_MAX = 36

_COLOURS = {
    Grade.EXACT: "\x1b[32m",
    Grade.BRIDGE: "\x1b[36m",
    Grade.APPROXIMATE: "\x1b[33m",
    Grade.LOST: "\x1b[31m",
}


def table(report: Report, *, show_exact: bool = False, is_coloured: bool = False) -> str:
    """Return the table.

    Args:
        show_exact: also list properties that are exact on every target.
        is_coloured: with the colours of a terminal.
    """
    notes: dict[str, int] = {}
    flavours = list(dict.fromkeys(flavour for flavour, _ in report.targets))
    shown = [each for each in report.entries if show_exact or each.worst is not Grade.EXACT]
    head = ["entity", "property", "value", *(flavour.value for flavour in flavours)]
    rows = [head]
    colours: dict[tuple[int, int], str] = {}
    for entry in shown:
        cells = [_cell(entry, flavour, report.targets, notes) for flavour in flavours]
        if is_coloured:
            colours |= {
                (len(rows), column): _COLOURS[grade]
                for column, (_, grade) in enumerate(cells, start=3)
            }
        rows.append(
            [
                _named(entry, is_bridged=Flavour.BRIDGE in flavours),
                entry.name,
                _shortened(entry.value),
                *(text for text, _ in cells),
            ]
        )
    lines = aligned(rows, colours=colours) if shown else []
    lines += _footnotes(notes) + _findings(report) + _summary(report)
    return "\n".join(lines) + "\n"


def _named(entry: GradedProperty, *, is_bridged: bool) -> str:
    """Return an entity's path, and its RabbitMQ name where the two differ."""
    if is_bridged and entry.rabbitmq_name != entry.entity:
        return f"{entry.entity} ({entry.rabbitmq_name})"
    return entry.entity or "(namespace)"


def _cell(
    entry: GradedProperty, flavour: Flavour, targets: tuple[Target, ...], notes: dict[str, int]
) -> tuple[str, Grade]:
    """Return a cell, `exact` or `4.0: exact; 4.3: approximate [2]`, and its worst grade."""
    cases = {version: entry.grades[flavour, version] for own, version in targets if own is flavour}
    groups: dict[Case, list[str]] = {}
    for version, case in cases.items():
        groups.setdefault(
            Case(grade=case.grade, note=case.note if case.grade is not Grade.EXACT else ""), []
        ).append(version)
    parts = []
    for case, versions in groups.items():
        text = case.grade.value
        if case.note:
            text += f" [{notes.setdefault(case.note, len(notes) + 1)}]"
        parts.append(f"{', '.join(versions)}: {text}" if len(groups) > 1 else text)
    return "; ".join(parts), max((case.grade for case in groups), key=lambda grade: grade.rank)


def _footnotes(notes: dict[str, int]) -> list[str]:
    return ["", *(f"[{number}] {note}" for note, number in notes.items())] if notes else []


def _findings(report: Report) -> list[str]:
    if not report.findings:
        return []
    return ["", "In the input:"] + [f"{each.grade}: {each.message}" for each in report.findings]


def _summary(report: Report) -> list[str]:
    lines = [""]
    for flavour, version in report.targets:
        counts = ", ".join(
            f"{report.count((flavour, version), grade)} {grade.value}" for grade in Grade
        )
        lines.append(f"{flavour.value}, RabbitMQ {version}: {counts}")
    return lines


def _shortened(value: str) -> str:
    return value if len(value) <= _VALUE_WIDTH_MAX else value[: _VALUE_WIDTH_MAX - 1] + "…"
