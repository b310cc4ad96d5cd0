"""Tasks that run by themselves: the event loop alone keeps none of them from being collected."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks(set[asyncio.Task[Any]]):
    """Those that have not ended."""

    def start(self, work: Coroutine[Any, Any, object], name: str | None = None) -> None:
        """Have something done beside everything else."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.add(task)
        task.add_done_callback(self.discard)

    def cancel(self) -> None:
        """End all but the one that asks for it."""
        current = asyncio.current_task()
        for task in self:
            if task is not current:
                task.cancel()
