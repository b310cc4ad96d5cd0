"""Interaction with a user at a terminal: colors, questions, progress."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

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
    return answer(f"{question} [y/N]").lower() in ("y", "yes")


def answer(question: str) -> str:
    """Ask a question, and return what is typed."""
    print(f"{question} ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


class ProgressBar:
    """A bar on standard error that shows how far a work is, with the time that remains.

    For commands that do without the extra `tools`; others have `Output.progress`. The bar appears
    only at a terminal, once the work lasts above a second, and disappears at the end. It is drawn
    again each second, so that a step that takes long is seen to be under way.

    Args:
        total: the number of steps.
        what: what is being done, such as "Applying".
    """

    def __init__(self, total: int, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._what = what
        self._clock = clock
        self._done = 0
        self._doing = ""
        self._began_s = clock()
        self._timer: asyncio.TimerHandle | None = None
        self._is_shown = False

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._draw)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_shown:
            print(_CLEAR, end="", file=sys.stderr, flush=True)

    def advance(self, count: int = 1) -> None:
        """Note that so many more steps are done."""
        self._done += count
        self._again()

    def add(self, count: int) -> None:
        """Note that so many more steps are to be done."""
        self._total += count

    def doing(self, what: str) -> None:
        """Name what is being done now, behind the bar."""
        self._doing = what
        self._again()

    def _again(self) -> None:
        if self._is_shown:
            self._draw()

    def _draw(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(1.0, self._draw)
        self._is_shown = True
        shown = self.line()[: shutil.get_terminal_size().columns - 1]  # one line can be cleared
        print(f"{_CLEAR}{shown}", end="", file=sys.stderr, flush=True)

    def line(self) -> str:
        """Return the bar as it is now."""
        filled = _WIDTH * self._done // max(self._total, 1)
        bar = "#" * filled + "." * (_WIDTH - filled)
        left = self._total - self._done
        rest = f", {self._remaining(left)} left" if self._done and left else ""
        doing = f": {self._doing}" if self._doing else ""
        return f"{self._what} [{bar}] {self._done:,}/{self._total:,}{rest}{doing}"

    def _remaining(self, left: int) -> str:
        minutes, seconds = divmod(round((self._clock() - self._began_s) * left / self._done), 60)
        return f"{minutes}:{seconds:02}"
