"""Rows of text in columns, with a line below the first row, as every table of `policies` has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

_PLAIN = "\x1b[0m"


def aligned(
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    colours: Mapping[tuple[int, int], str] | None = None,
) -> list[str]:
    """Return the lines of a table.

    Args:
        rows: the cells, without colours; the first row is the head.
        right: the columns that are aligned to the right.
        colours: a terminal's sequence for the cells that have one, by row and column.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for column in range(len(cells)):
            if colour := (colours or {}).get((number, column)):
                cells[column] = colour + cells[column] + _PLAIN
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    return lines
