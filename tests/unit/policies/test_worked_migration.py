"""The worked migration of the documentation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from policies import worked_migration

DOCS = Path(__file__).parents[3] / "docs"


def test_the_documentation_shows_what_the_code_writes() -> None:
    """`python -m policies.worked_migration docs` mends it."""
    assert worked_migration.main([str(DOCS), "--check"]) == 0


def test_what_differs_is_said_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every generated file is checked; all of them are mended at once."""
    docs = tmp_path / "docs"
    shutil.copytree(DOCS / worked_migration.FOLDER, docs / worked_migration.FOLDER)
    shutil.copy(DOCS / worked_migration.PAGE, docs)
    script = docs / worked_migration.FOLDER / "orders.cmd"
    script.write_text("changed")
    assert worked_migration.main([str(docs), "--check"]) == 1
    assert "orders.cmd is not what the code writes" in capsys.readouterr().err
    assert worked_migration.main([str(docs)]) == 0
    assert worked_migration.main([str(docs), "--check"]) == 0
    assert script.read_bytes().endswith(b"\r\n")
    page = docs / worked_migration.PAGE
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no lines"):
        worked_migration.files(docs)
