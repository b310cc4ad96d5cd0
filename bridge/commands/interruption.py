"""What SIGINT and SIGTERM do to a command."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Ends a command at a signal: at once, or where the command says that it can stop.

    Args:
        say: prints a sentence for the user.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._asked: asyncio.Event | None = None
        self._task: asyncio.Task[Any] | None = None

    @contextmanager
    def ending(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """Cancel a task at each signal that is not deferred."""
        self._task = task
        self._listen()
        try:
            yield
        finally:
            self._ignore()
            self._task = None

    @contextmanager
    def deferred(self) -> Iterator[asyncio.Event]:
        """Let the first signal set the event that is yielded; the second cancels the task.

        The command stops when it sees the event: it finishes what is under way, gives back the
        rest, and says how to go on. A part of it that is deferred, too, such as its end, has an
        event of its own.
        """
        before, asked = self._asked, asyncio.Event()
        self._asked = asked
        try:
            yield asked
        finally:
            self._asked = before

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Have SIGINT raise KeyboardInterrupt: what blocks the loop, as a question, sees it so."""
        if self._task is None:
            yield
            return
        self._ignore()
        try:
            yield
        finally:
            self._listen()

    def _listen(self) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _ignore(self) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self._asked is not None and not self._asked.is_set():
            self._asked.set()
            self._say("stopping; interrupt again to stop at once")
        elif self._task is not None:
            self._task.cancel()
