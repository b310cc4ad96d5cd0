"""What all clients together make the bridge hold: unfinished, unconfirmed and unread bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.gateway import texts
from bridge.gateway.admission import Ended
from bridge.gateway.settings import Settings
from bridge.machine.amqp10.faults import RESOURCE_LIMIT_EXCEEDED

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection
    from bridge.gateway.unconfirmed import Unconfirmed


class Backlog:
    """Bounds what is held for all connections of a gateway.

    Too much unconfirmed by RabbitMQ: clients are not read from until it has taken some. Too much
    unfinished: who has owed the rest for longest loses its connection. Too many that do not read:
    the first of them does.

    Attributes:
        waiting_bytes: of messages that RabbitMQ has not confirmed.
        unfinished_bytes: of frames and messages that have not come whole.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.waiting_bytes = 0
        self.unfinished_bytes = 0
        self._held: dict[Unconfirmed, None] = {}
        self._unfinished: dict[Connection, int] = {}
        self._unread: dict[Connection, None] = {}

    def __repr__(self) -> str:
        return (
            f"<Backlog waiting={self.waiting_bytes} unfinished={self.unfinished_bytes} "
            f"unread={len(self._unread)}>"
        )

    @property
    def is_full(self) -> bool:
        """Whether more waits for RabbitMQ than may."""
        return self.waiting_bytes > self._settings.waiting_bytes_max

    def hold(self, unconfirmed: Unconfirmed) -> None:
        """A client is not read from, for what waits for RabbitMQ."""
        self._held[unconfirmed] = None

    def let_go(self, unconfirmed: Unconfirmed) -> None:
        """It is read again."""
        self._held.pop(unconfirmed, None)

    def release(self) -> None:
        """Read again from those that wait for others, if there is room."""
        if self._held and self.waiting_bytes < self._settings.waiting_bytes_max // 2:
            for unconfirmed in [each for each in self._held if each.waits_for_others]:
                unconfirmed.release()

    def note_unfinished(self, connection: Connection, size: int) -> None:
        """Note how much of frames and messages a connection has sent in part."""
        before = self._unfinished.get(connection, 0)
        if size == before:
            return
        if size:
            self._unfinished[connection] = size
        else:
            self._unfinished.pop(connection, None)
        self.unfinished_bytes += size - before
        if self.unfinished_bytes > self._settings.unfinished_bytes_max:
            self._end_oldest()

    def _end_oldest(self) -> None:
        """End the connection that has owed longest, of those that hold their share or more."""
        share = self.unfinished_bytes / len(self._unfinished)
        large = (each for each, size in self._unfinished.items() if size >= share)
        oldest = min(large, key=lambda each: each.unfinished_since_ms or 0)
        self.note_unfinished(oldest, 0)
        oldest.end(Ended.UNFINISHED, RESOURCE_LIMIT_EXCEEDED, texts.TOO_MUCH_UNFINISHED)

    def note_unread(self, connection: Connection) -> None:
        """A client does not read what it was sent."""
        self._unread[connection] = None
        if len(self._unread) > self._settings.unread_max:
            next(iter(self._unread)).end_unread()

    def note_read(self, connection: Connection) -> None:
        """It has read most of it."""
        self._unread.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        """A connection is gone; what waits for RabbitMQ of it still counts."""
        self.note_unfinished(connection, 0)
        self.note_read(connection)
