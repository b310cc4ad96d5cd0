"""One client's receiver of a queue: its credit for messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.engine.receiving.queue_reader import QueueReader


class QueueReceiver:
    """A receiver of one queue; see `api.Receiver`.

    Attributes:
        number: the receiver's number at its reader.
        reader: the reader of the queue.
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
        """Take back all credit; messages on their way may still come before this returns."""
        if not self._is_closed:
            await self.reader.withdraw(self.number)

    def close(self) -> Awaitable[None]:
        """Take back all credit for good; locks stay.

        No message is delivered from the call on; the awaitable ends when all credit is back.
        """
        if self._is_closed:
            return asyncio.sleep(0)
        self._is_closed = True
        self._on_closed(self)
        return self.reader.withdraw(self.number)
