"""Files of tests read once more, with the library's names where the SDK's stand."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent

Names = Mapping[str, ModuleType]
"""The module that stands for each name that is imported."""


def read(file: str, names: Names) -> dict[str, Any]:
    """Return what a file beside this one defines; `names` are imported as what is given."""
    module = ModuleType(f"{__name__}.{Path(file).stem}")
    sys.modules[module.__name__] = module  # where dataclasses look for it
    source = compile((HERE / file).read_text(), str(HERE / file), "exec")
    with _imported(names):
        exec(source, vars(module))
    return vars(module)


@contextmanager
def _imported(names: Names) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def methods(found: Mapping[str, Any], left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return the tests among what a file defines, as methods of a class.

    Args:
        left_out: names of tests, and why they are none of the library's.
    """
    tests = {name: each for name, each in found.items() if name.startswith("test_")}
    return {name: staticmethod(each) for name, each in tests.items() if name not in left_out}
