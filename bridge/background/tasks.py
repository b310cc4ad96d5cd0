"""Work in the background that ends by itself; what fails is named in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from bridge.background.errors import trace_of

log = logging.getLogger(__name__)


class Tasks(set[asyncio.Task[Any]]):
    """The tasks that have not ended: the event loop itself has weak references only."""

    def start(
        self, work: Coroutine[Any, Any, object], name: str | None = None
    ) -> asyncio.Task[Any]:
        """Run a coroutine as a background task; its failure is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.add(task)
        task.add_done_callback(self._on_done)
        return task

    def cancel(self) -> None:
        """Cancel all tasks but the calling one."""
        current = asyncio.current_task()
        for task in self:
            if task is not current:
                task.cancel()

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "background.failed task=%s error=%s",
                *(task.get_name(), error or repr(error)),
                exc_info=trace_of(error),
            )
