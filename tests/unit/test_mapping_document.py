"""The page about messages on both sides says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from bridge.wire.mapping.fields import FROM_AMQP
from bridge.wire.mapping.names import BASIC_PROPERTIES, HEADER_PROPERTIES, PROPERTY_NAMES

PAGE = Path(__file__).parents[2] / "docs" / "mapping.md"


def rows_below(heading: str) -> list[list[str]]:
    """Return the cells of the table in a section of docs/mapping.md, without its head."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_each_property_stands_where_the_page_says() -> None:
    """In the order of AMQP 1.0."""
    places = {name: f"property `{place}`" for name, place in BASIC_PROPERTIES.items()}
    places |= {name: f"header `{place}`" for name, place in HEADER_PROPERTIES.items()}

    assert [(row[0], row[2]) for row in rows_below("Properties")] == [
        (name, places[name]) for name in PROPERTY_NAMES
    ]


def test_each_type_is_mapped_as_the_page_says() -> None:
    """To the field of that letter, exactly or not; all other types have no field."""
    *rows, others = rows_below("Types of application properties")
    mapped = {name: (letter, is_exact) for name, letter, is_exact, _ in FROM_AMQP.values()}

    told = {}
    for name, field, grade in rows:
        found = re.search(r"\(`(.)`\)$", field)
        assert found is not None, field
        # A timestamp is exact when its milliseconds are whole seconds: `field_of` says so itself.
        told[name] = (found[1], grade.startswith("exact") and name != "timestamp")
    assert told == mapped
    assert others[1] == "none"
