"""The tables of the documentation: of properties, made from `mapping`, and of `versions`.

    python -m policies.mapping_table docs/policies.md [--check]

writes it between its two marks, or says whether the page is as it would be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bridge.model.properties import Kind
from policies import mapping, versions
from policies.grade import Case, Flavour
from policies.report import TARGETS
from policies.row import Row

BEGIN = "<!-- mapping table: made by `python -m policies.mapping_table`; do not edit -->"
END = "<!-- end of the mapping table -->"

_HEAD = (
    "| Service Bus | of | in RabbitMQ | with the bridge | RabbitMQ alone |\n|---|---|---|---|---|\n"
)


class NoMarks(ValueError):
    """The page has no place for the table."""


def markdown() -> str:
    """Return the tables."""
    properties = _HEAD + "".join(_line(row) for row in mapping.ROWS)
    return f"{properties}\nBy version of RabbitMQ:\n\n{versions.table(TARGETS)}"


def inserted(page: str) -> str:
    """Return a page with the table between its marks.

    Raises:
        NoMarks: the page lacks one of them.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise NoMarks(f"The page has no lines {BEGIN!r} and {END!r}.")
    return f"{before}{BEGIN}\n\n{markdown()}\n{END}{after}"


def _line(row: Row) -> str:
    kinds = ", ".join(kind.value.lower() for kind in Kind if kind in row.kinds()) or "namespace"
    cells = [_cases(row, flavour) for flavour in (Flavour.BRIDGE, Flavour.PLAIN)]
    return f"| {row.property} | {kinds} | {row.rabbitmq} | {' | '.join(cells)} |\n"


def _cases(row: Row, flavour: Flavour) -> str:
    return "<br>".join(_case(each) for each in row.cases(flavour))


def _case(case: Case) -> str:
    text = f"**{case.grade.value}**" + (f": {case.note}" if case.note else "")
    return f"{case.when}: {text}" if case.when else text


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m policies.mapping_table")
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    page = options.page.read_text(encoding="utf-8")
    wanted = inserted(page)
    if options.check and page != wanted:
        sys.stderr.write(
            f"{options.page}: the mapping table is not that of the code. "
            f"Run 'python -m policies.mapping_table {options.page}'.\n"
        )
        return 1
    if page != wanted:
        options.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
