"""One client's demand for messages of an entity."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.engine.api import Received, ReceiveMode
from bridge.engine.receiving.queue_reader import QueueReader
from bridge.model.name import EntityPath


class QueueReceiver:
    """A receiver of one queue; see `api.Receiver`.

    Attributes:
        number: names it to its reader.
        mode: whether messages are locked or gone.
        deliver: gives the client a message.
    """

    def __init__(
        self,
        number: int,
        reader: QueueReader,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
        on_closed: Callable[[int], None],
    ) -> None:
        self.number = number
        self.mode = mode
        self.deliver = deliver
        self._reader = reader
        self._on_closed = on_closed
        self._is_closed = False

    @property
    def path(self) -> EntityPath:
        """What is received from."""
        return self._reader.path

    def __repr__(self) -> str:
        return f"QueueReceiver({self.number}, {self._reader!r})"

    def add_credit(self, count: int) -> None:
        """Ask for `count` more messages."""
        if count > 0 and not self._is_closed:
            self._reader.ask(self.number, count)

    async def drain(self) -> None:
        """Take back all credit; what is on its way may still come before this returns."""
        if not self._is_closed:
            await self._reader.withdraw(self.number)

    def close(self) -> Awaitable[None]:
        """Take back all credit for good; locks stay.

        Nothing is delivered from the call on; the rest is done when what it returns is.
        """
        if self._is_closed:
            return asyncio.sleep(0)
        self._is_closed = True
        self._on_closed(self.number)
        return self._reader.withdraw(self.number)
