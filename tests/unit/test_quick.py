"""Which unit tests `make quick` runs for what has changed."""

from __future__ import annotations

import pytest

from tests.quick import ALWAYS, ROOT, about, imported

TEXTS = {
    "tests/unit/a/test_one.py": "from bridge.model.name import EntityPath\n",
    "tests/unit/b/test_two.py": "from bridge.model import name, values\n",
    "tests/unit/test_three.py": 'import json\nPLACE = "docker/compose.yaml"\n',
}


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("bridge/model/name.py", ["tests/unit/a/test_one.py", "tests/unit/b/test_two.py"]),
        ("bridge/model/values.py", ["tests/unit/b/test_two.py"]),
        ("docker/compose.yaml", ["tests/unit/test_three.py"]),
        ("tests/unit/test_three.py", ["tests/unit/test_three.py"]),
        ("bridge/model/entity.py", []),
        ("README.md", []),
    ],
)
def test_a_change_selects_the_tests_that_are_about_it(path: str, tests: list[str]) -> None:
    """They import the module, name the file, or are the file."""
    assert about([path], TEXTS, TEXTS.__getitem__) == tests


def test_both_forms_of_import_count() -> None:
    """Also within a function."""
    text = "import a.b\ndef f():\n    from c import d\n"
    assert imported(text) == {"a.b", "c", "c.d"}


def test_what_always_runs_is_there() -> None:
    """A renamed file would not be missed otherwise."""
    assert all((ROOT / each).is_file() for each in ALWAYS)
