"""The settlements of a commit that are not written to RabbitMQ yet."""

from __future__ import annotations

import asyncio


class Writes:
    """Settlements that are to be written."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._done: asyncio.Future[None] | None = None

    def count(self) -> None:
        """Count one that is written, or lost."""
        self._left -= 1
        if self._left <= 0 and self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def wait(self, within_s: float) -> None:
        """Return when all are written, or after some seconds."""
        if self._left > 0:
            self._done = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._done}, timeout=within_s)
