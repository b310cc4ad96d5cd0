"""`make quick`: lint of what changed, and the unit tests that are about it.

    python -m tests.quick [BRANCH]

Changed is what differs from the commit where this branch left BRANCH (default: main), committed
or not. Of the unit tests those are run that have changed, that import a changed module, or that
name a changed file; and those that look at all of the code.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNIT = "tests/unit"
LIMIT_S = 300

ALWAYS = tuple(
    f"{UNIT}/test_{name}.py"
    for name in ("compiled", "documented_files", "imports", "lengths", "mapping_document")
)
"""What looks at all of the code, in seconds."""

_COMMON = {"__init__.py", "README.md", "conftest.py"}
"""Names that say nothing about which file is meant."""


def changed(branch: str = "main") -> list[str]:
    """Return the paths of the files that have changed and are there."""
    base = _git("merge-base", branch, "HEAD")[0]
    names = _git("diff", "--name-only", "--diff-filter=d", base)
    return sorted({*names, *_git("ls-files", "--others", "--exclude-standard")})


def about(paths: Iterable[str], every: Iterable[str], read: Callable[[str], str]) -> list[str]:
    """Return the unit tests that are about changed files.

    Args:
        every: the paths of all unit tests.
        read: returns a file's text.
    """
    given = set(paths)
    modules = {_module(path) for path in given if path.endswith(".py")}
    names = {path.rpartition("/")[2] for path in given} - _COMMON
    others = {name for name in names if not name.endswith(".py")}
    found = []
    for test in every:
        text = read(test)
        is_named = any(name in text for name in others)
        if test in given or is_named or not modules.isdisjoint(imported(text)):
            found.append(test)
    return found


def imported(text: str) -> set[str]:
    """Return the modules that a program imports; of `from a import b` both `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main(arguments: list[str]) -> int:
    """Run all steps; return 1 when one has failed."""
    paths = changed(*arguments)
    sources = [path for path in paths if path.endswith(".py")]
    every = sorted(str(each.relative_to(ROOT)) for each in (ROOT / UNIT).rglob("test_*.py"))
    tests = about(paths, every, lambda path: (ROOT / path).read_text())
    tests = sorted({*tests, *ALWAYS})
    print(f"{len(paths)} files have changed; {len(tests)} files of unit tests are about them.")
    python = [sys.executable, "-m"]
    steps = [
        [*python, "ruff", "format", "--check", "--quiet", *sources] if sources else [],
        [*python, "ruff", "check", "--quiet", *sources] if sources else [],
        [*python, "mypy"] if sources else [],
        [str(Path(sys.executable).with_name("lint-imports")), "--no-logo"] if sources else [],
        [
            *python,
            "pytest",
            "-q",
            "--numprocesses",
            "2",
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
            *tests,
        ],
    ]
    is_failed = False
    for step in filter(None, steps):
        begun_s = time.monotonic()
        code = subprocess.run(step, cwd=ROOT, check=False, timeout=LIMIT_S).returncode
        name = next(each for each in step[1:] if not each.startswith("-")) if "-m" in step else ""
        taken = f"{time.monotonic() - begun_s:.1f} s"
        print(f"{name or 'lint-imports'}: {'failed' if code else 'passed'} in {taken}", flush=True)
        is_failed |= code != 0
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
