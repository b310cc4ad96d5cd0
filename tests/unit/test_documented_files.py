"""The pages name files that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = re.compile(
    r"`([\w./{},-]*?[\w}]+\.py|(?:bridge|policies|tests)/[\w/]+/|\.\.\./[\w/]+\.py)`"
)
ROOTS = ("bridge", "policies", "tests")
NAMES = {path.name for root in ROOTS for path in (ROOT / root).rglob("*.py")}


def files_of(line: str) -> Iterator[str]:
    """Yield the files and folders that a line names, from the root.

    A name without a folder is beside the one before it, or anywhere when it is the line's first;
    `...` is the folder above the one before.
    """
    folder = ""
    for name in NAMED.findall(line):
        if name.startswith("..."):
            path = folder.rpartition("/")[0] + name.removeprefix("...")
        elif name.partition("/")[0] in ROOTS:
            path = name
        elif "/" in name:
            path = f"bridge/{name}"
        elif folder or name not in NAMES:
            path = f"{folder}/{name}"
        else:
            continue
        folder = path.rpartition("/")[0] if path.endswith(".py") else path.rstrip("/")
        yield path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_file_of_a_page_is_there(page: Path) -> None:
    """Where a file moves, the pages that name it say so; `NAME.py` stands for any."""
    named = [path for line in page.read_text().splitlines() for path in files_of(line)]
    assert not [path for path in named if path.islower() and not (ROOT / path).exists()]
