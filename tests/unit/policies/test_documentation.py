"""What the documentation shows of the code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.documentation import generated, worked_migration

DOCS = Path(__file__).parents[3] / "docs"


def test_the_documentation_shows_what_the_code_writes() -> None:
    """`python -m tests.documentation docs` mends it."""
    assert generated.main([str(DOCS), "--check"]) == 0


def test_what_differs_is_said_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every generated file is checked; all of them are mended at once."""
    docs = tmp_path / "docs"
    shutil.copytree(DOCS / worked_migration.FOLDER, docs / worked_migration.FOLDER)
    shutil.copy(DOCS / generated.PAGE, docs)
    shutil.copy(DOCS / generated.COMMANDS, docs)
    shutil.copy(DOCS / generated.HYBRID, docs)
    script = docs / worked_migration.FOLDER / "orders.cmd"
    script.write_text("changed")
    assert generated.main([str(docs), "--check"]) == 1
    assert "orders.cmd is not what the code writes" in capsys.readouterr().err
    assert generated.main([str(docs)]) == 0
    assert generated.main([str(docs), "--check"]) == 0
    assert script.read_bytes().endswith(b"\r\n")
    page = docs / generated.PAGE
    text = page.read_text()
    page.write_text(text.replace("| LockDuration | queue, subscription |", "| old |"))
    assert generated.main([str(docs), "--check"]) == 1
    assert "policies.md is not what the code writes" in capsys.readouterr().err
    assert generated.main([str(docs)]) == 0
    assert page.read_text() == text


def test_a_page_without_marks_is_refused() -> None:
    """Nothing is ever put at a guessed place."""
    with pytest.raises(generated.NoMarks, match="The page has no lines"):
        generated.inserted("# Page\n", "mapping table", "| a |")
