"""Few files need each other: a reader can take in one file after the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CIRCLE_MAX = 4

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("bridge", "policies")
    for path in (ROOT / package).rglob("*.py")
}
"""The modules, by name."""

Graph = dict[str, set[str]]


@cache
def imports() -> Graph:
    """Return what each module imports, for its types alone too."""
    return {name: set(_imported(path)) - {name} for name, path in FILES.items()}


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in FILES)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                module = f"{node.module}.{each.name}"
                found = module if module in FILES else node.module
                if found in FILES:
                    yield found


def reached(graph: Graph, begin: str) -> set[str]:
    """Return all that a node leads to."""
    found: set[str] = set()
    new = {begin}
    while new:
        new = {each for name in new for each in graph.get(name, ())} - found
        found |= new
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Return the largest sets of nodes of which each leads to each other one."""
    reach = {name: reached(graph, name) for name in graph}
    found = {
        frozenset(each for each in reach[name] if name in reach.get(each, ())) for name in graph
    }
    return sorted(sorted(each) for each in found if len(each) > 1)


def folders(below: str) -> Graph:
    """Return what each folder of a package imports from the folders beside it."""
    graph: Graph = {}
    for name, imported in imports().items():
        folder = _folder(name, below)
        if folder is not None:
            others = {_folder(each, below) for each in imported} - {folder, None}
            graph.setdefault(folder, set()).update(each for each in others if each is not None)
    return graph


def _folder(name: str, below: str) -> str | None:
    rest = name.removeprefix(f"{below}.").split(".")
    return rest[0] if name.startswith(f"{below}.") and len(rest) > 1 else None


def test_no_more_than_four_files_import_each_other() -> None:
    """To read one file of such a circle one has to know them all."""
    assert not [each for each in circles(imports()) if len(each) > CIRCLE_MAX]


@pytest.mark.parametrize("package", ["engine", "gateway", "machine", "sidecar"])
def test_the_folders_of_a_package_have_an_order(package: str) -> None:
    """No two of them import each other, not even by way of a third."""
    assert not circles(folders(f"bridge.{package}"))


def test_a_circle_is_found() -> None:
    """A file that leads into a circle, or that a circle leads to, is no part of it."""
    graph = {"in": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a", "out"}, "out": set()}
    assert circles(graph) == [["a", "b", "c"]]
