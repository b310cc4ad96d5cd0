"""Operations under way for one client, and the wait for their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

OnFailed = Callable[[Exception], None]


class Work:
    """The tasks, sends and settlements of one connection.

    Args:
        on_failed: called when a task has failed that has no such callback of its own.

    Attributes:
        tasks: running tasks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_failed: OnFailed) -> None:
        self._loop = loop
        self._on_failed = on_failed
        self.tasks: set[asyncio.Task[None]] = set()
        self._counted = 0
        self._is_stopping = False
        self._is_answered = asyncio.Event()

    def spawn(
        self, work: Coroutine[Any, Any, None], on_failed: OnFailed | None = None
    ) -> asyncio.Task[None]:
        """Start a task, which ends by itself or with the gateway."""
        task = self._loop.create_task(work)
        self.tasks.add(task)
        done = self._on_done if on_failed is None else partial(self._on_done, on_failed=on_failed)
        task.add_done_callback(done)
        return task

    def _on_done(self, task: asyncio.Task[None], on_failed: OnFailed | None = None) -> None:
        self.tasks.discard(task)
        self._look()
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            (on_failed or self._on_failed)(error)

    def count(self, change: int) -> None:
        """Count sends and settlements that are under way without a task."""
        self._counted += change
        if self._is_stopping:
            self._look()

    def stop(self) -> None:
        """Note that nothing more is taken of the client."""
        self._is_stopping = True
        self._look()

    def answered(self) -> Awaitable[object]:
        """Wait, after `stop`, until no operation of the client is under way."""
        return self._is_answered.wait()

    def _look(self) -> None:
        if self._is_stopping and not self.tasks and not self._counted:
            self._is_answered.set()
