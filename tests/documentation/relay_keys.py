"""The table of the keys of a relay's file, made from what reads it."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.relay.plan.keys import FILE, ROUTE, SIDE, Key

_TABLES = (
    ("Above all tables", FILE),
    ("A side: `[sides.NAME]`", SIDE),
    ("A route: `[[routes]]`", ROUTE),
)


def markdown() -> str:
    """Return the tables."""
    parts = [f"### {title}\n\n{_table(known.values())}" for title, known in _TABLES]
    return "\n".join(parts)


def _table(known: Iterable[Key]) -> str:
    rows = [
        f"| `{each.name}` | {_cell(each.meaning)} | `{each.example}` | {_cell(each.default)} |\n"
        for each in known
    ]
    return "| key | | example | without it |\n|---|---|---|---|\n" + "".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
