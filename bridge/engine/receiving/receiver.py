"""One client's demand for messages of an entity."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.engine.receiving.queue_reader import QueueReader


class QueueReceiver:
    """A receiver of one queue; see `api.Receiver`.

    Attributes:
        number: names it to its reader.
        reader: the queue.
    """

    def __init__(
        self, number: int, reader: QueueReader, on_closed: Callable[[QueueReceiver], None]
    ) -> None:
        self.number = number
        self.reader = reader
        self._on_closed = on_closed
        self._is_closed = False

    def __repr__(self) -> str:
        return f"QueueReceiver({self.number}, {self.reader!r})"

    def add_credit(self, count: int) -> None:
        """Ask for `count` more messages."""
        if count > 0 and not self._is_closed:
            self.reader.ask(self.number, count)

    async def drain(self) -> None:
        """Take back all credit; what is on its way may still come before this returns."""
        if not self._is_closed:
            await self.reader.withdraw(self.number)

    def close(self) -> Awaitable[None]:
        """Take back all credit for good; locks stay.

        Nothing is delivered from the call on; the rest is done when what it returns is.
        """
        if self._is_closed:
            return asyncio.sleep(0)
        self._is_closed = True
        self._on_closed(self)
        return self.reader.withdraw(self.number)
