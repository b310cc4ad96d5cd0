"""What the command says to somebody who sits at a terminal: colours, questions, progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

T = TypeVar("T")

QUIET_S = 1.0
"""What takes no longer shows no progress."""

_WIDTH = 30
_CLEAR = "\r\x1b[K"


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user does not mind colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def can_ask() -> bool:
    """Whether there is somebody who can read a question, and answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str) -> bool:
    """Ask; only `y` and `yes` are a yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def progress(things: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Yield the things; from the second on that this takes, a bar on standard error shows how far.

    Only at a terminal. The bar is gone when it ends.
    """
    began, is_shown = time.monotonic(), False
    for done, each in enumerate(things):
        if sys.stderr.isatty() and time.monotonic() - began > QUIET_S:
            filled = _WIDTH * done // max(total, 1)
            bar = "#" * filled + "." * (_WIDTH - filled)
            print(f"{_CLEAR}{what} [{bar}] {done}/{total}", end="", file=sys.stderr, flush=True)
            is_shown = True
        yield each
    if is_shown:
        print(_CLEAR, end="", file=sys.stderr, flush=True)
