"""The page about messages on both sides."""

from __future__ import annotations

from pathlib import Path

from bridge.wire.mapping.document import document


def test_the_page_is_what_the_code_does() -> None:
    """docs/mapping.md is generated from the tables that the code runs on."""
    page = Path(__file__).parents[2] / "docs" / "mapping.md"

    assert page.read_text() == document()
