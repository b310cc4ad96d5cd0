"""Interaction with a user at a terminal: colors, questions, progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

T = TypeVar("T")

QUIET_S = 1.0
"""Time before a progress bar appears."""

_WIDTH = 30
_CLEAR = "\r\x1b[K"


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user accepts colors (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def can_ask() -> bool:
    """Whether a user can read and answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str) -> bool:
    """Ask a question; only `y` and `yes` are a yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def progress(things: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Yield the things; after the first second a bar on standard error shows the progress.

    The bar appears only at a terminal, and disappears at the end.
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
