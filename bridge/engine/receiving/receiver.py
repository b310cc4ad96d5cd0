"""One client's receiver of a queue: its credit for messages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

from bridge.engine.api import NotTaken
from bridge.engine.receiving.queue_reader import QueueReader
from bridge.engine.settlement.held_message import HeldMessage
from bridge.model.name import EntityPath

log = logging.getLogger(__name__)


def note_failed(path: EntityPath, error: Exception) -> None:
    """Log the fault of a receiver's callback, which ends the receiver."""
    if not isinstance(error, NotTaken):
        log.error("receiver.failed entity=%s", path, exc_info=error)


class QueueReceiver:
    """A receiver of one queue; see `api.Receiver`.

    Args:
        on_taken: called with each received-and-deleted message that is in the client's output.
        on_closed: called when the receiver is closed.

    Attributes:
        number: the receiver's number at its reader.
        reader: the reader of the queue.
    """

    def __init__(
        self,
        number: int,
        reader: QueueReader,
        on_taken: Callable[[QueueReader, HeldMessage], None],
        on_closed: Callable[[QueueReceiver], None],
    ) -> None:
        self.number = number
        self.reader = reader
        self._on_taken = on_taken
        self._on_closed = on_closed
        self._closed: Awaitable[None] | None = None
        self._untaken: deque[HeldMessage] = deque()

    def __repr__(self) -> str:
        return f"QueueReceiver({self.number}, {self.reader!r})"

    def add_credit(self, count: int) -> None:
        """Ask for `count` more messages."""
        if count > 0 and self._closed is None:
            self.reader.ask(self.number, count)

    async def withdraw(self) -> None:
        """Take back all credit; messages on their way may still come before this returns."""
        if self._closed is None:
            await self.reader.withdraw(self.number)

    async def drain(self) -> None:
        """Wait for the messages that the queue has ready, then take back the rest of the credit."""
        if self._closed is None:
            await self.reader.ready.bring(self.number)
        await self.withdraw()

    def sent(self, holding: HeldMessage) -> None:
        """Note that a message is being sent to a client that receives and deletes."""
        self._untaken.append(holding)

    def taken(self) -> None:
        """Settle the message that was sent first."""
        if self._untaken:
            self._on_taken(self.reader, self._untaken.popleft())

    def take_back(self) -> None:
        """Forget the message that was sent last."""
        self._untaken.pop()

    def close(self) -> Awaitable[None]:
        """Take back all credit for good; locks stay, and messages that were not taken go back.

        No message is delivered from the call on; the awaitable ends when all credit is back.
        """
        if self._closed is not None:
            return self._closed
        self._closed = self.reader.withdraw(self.number)
        self._on_closed(self)
        while self._untaken:
            holding = self._untaken.popleft()
            if self.reader.holds(holding):
                self.reader.release(holding)
        return self._closed
