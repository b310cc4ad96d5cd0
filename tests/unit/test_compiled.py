"""What is compiled (pyproject.toml) may be."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOOK = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]


def compiled() -> list[Path]:
    """Return the modules that the compiler is given."""
    included = [path for each in HOOK["include"] for path in ROOT.glob(each.removeprefix("/"))]
    return [path for path in included if not _is_excluded(path, HOOK["exclude"])]


def _is_excluded(path: Path, patterns: list[str]) -> bool:
    relative = "/" + path.relative_to(ROOT).as_posix()
    return any(pattern in (relative, path.name) for pattern in patterns)


@pytest.mark.parametrize("path", compiled(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_coroutine_is_compiled(path: Path) -> None:
    """Compiled by mypyc 2.4.1, a coroutine that awaits in `finally` forgets its exception there.

    A task that was cancelled goes on, or raises what another task raised meanwhile.
    """
    nodes = ast.walk(ast.parse(path.read_text()))
    assert not [node for node in nodes if isinstance(node, ast.AsyncFunctionDef | ast.Await)]


def test_each_line_of_the_list_names_a_module() -> None:
    """A file that was renamed would be left out in silence."""
    for pattern in HOOK["include"] + HOOK["exclude"]:
        if pattern.startswith("/"):
            assert list(ROOT.glob(pattern.removeprefix("/"))), pattern


@pytest.mark.parametrize("path", ["docker/setup/compiled", "docker/Dockerfile"])
def test_each_build_hides_its_functions(path: str) -> None:
    """Else each call from one C file to another goes through a table, which costs some percent."""
    (line,) = [
        each
        for each in (ROOT / path).read_text().splitlines()
        if "HATCH_BUILD_HOOK_ENABLE_MYPYC=true" in each
    ]
    assert "-fvisibility=hidden" in line
