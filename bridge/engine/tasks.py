"""Background tasks, kept from garbage collection: the event loop has weak references only."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks(set[asyncio.Task[Any]]):
    """The background tasks that have not ended."""

    def start(self, work: Coroutine[Any, Any, object], name: str | None = None) -> None:
        """Run a coroutine as a background task."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.add(task)
        task.add_done_callback(self.discard)

    def cancel(self) -> None:
        """Cancel all tasks but the calling one."""
        current = asyncio.current_task()
        for task in self:
            if task is not current:
                task.cancel()
