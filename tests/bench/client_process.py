"""A client in a process of its own, which prints what it has measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

LIMIT_S = 300


def python_client(module: str, *arguments: object) -> list[str]:
    """Return the command line of a client that is a module of `tests.bench`."""
    return [sys.executable, "-m", f"tests.bench.{module}", *map(str, arguments)]


def measured(name: str, command: Sequence[str]) -> dict[str, Any]:
    """Run a client; return its last line, which is JSON.

    Raises:
        RuntimeError: it has failed; with its name and the end of its errors.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))
