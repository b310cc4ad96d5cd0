"""Messages that a client holds, unacked."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from bridge.client.core.wire import Channel
from bridge.message.message import Message
from bridge.message.received import Received


@dataclass(slots=True, eq=False)
class Held(Message):
    """A held message.

    Attributes:
        fetch: the get or window that brought it.
        channel: where it is settled, by `tag`.
    """

    fetch: int
    channel: Channel
    tag: int

    def received(self, token: UUID | None = None, until_ms: int | None = None) -> Received:
        """Return the message in the application's form."""
        return Received(
            record=self.record,
            sequence_number=max(self.number, 0),
            enqueued_ms=self.enqueued_ms,
            delivery_count=self.failures,
            lock_token=token,
            locked_until_ms=until_ms,
            time_to_live_ms=self.time_to_live_ms,
            dead_letter=self.death,
            is_scheduled=self.was_scheduled,
        )


@dataclass(slots=True, eq=False)
class Copy:
    """A second copy of a message, unacked."""

    fetch: int
    channel: Channel
    tag: int
