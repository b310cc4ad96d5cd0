"""Limits of unfinished, unconfirmed and unread bytes over all connections of a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.gateway import texts
from bridge.gateway.admission import Ended
from bridge.gateway.memory import Memory
from bridge.gateway.settings import Settings
from bridge.machine.amqp10.faults import RESOURCE_LIMIT_EXCEEDED

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection
    from bridge.gateway.unconfirmed import Unconfirmed


class Backlog:
    """Counter of the bytes and clients that a gateway waits for, with limits over all connections.

    Too many bytes unconfirmed by RabbitMQ: clients are not read from until RabbitMQ has confirmed
    some. Too many bytes unfinished: of the connections with an average share or more, the
    connection whose frame or message has been incomplete for longest is ended. Too many clients
    that do not read: the client that stopped reading first loses its connection.

    Attributes:
        waiting_bytes: bytes of messages that RabbitMQ has not confirmed, and of requests under way.
        unfinished_bytes: bytes of incomplete frames and messages.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.waiting_bytes = 0
        self.unfinished_bytes = 0
        self._held: dict[Unconfirmed, None] = {}
        self._unfinished: dict[Connection, int] = {}
        self._unread: dict[Connection, None] = {}
        self._memory = Memory()

    def __repr__(self) -> str:
        return (
            f"<Backlog waiting={self.waiting_bytes} unfinished={self.unfinished_bytes} "
            f"unread={len(self._unread)}>"
        )

    @property
    def is_full(self) -> bool:
        """Whether the unconfirmed bytes exceed their limit."""
        return self.waiting_bytes > self._settings.waiting_bytes_max

    def hold(self, unconfirmed: Unconfirmed) -> None:
        """Note that a client is not read from because of unconfirmed bytes."""
        self._held[unconfirmed] = None

    def let_go(self, unconfirmed: Unconfirmed) -> None:
        """Note that a client is read again."""
        self._held.pop(unconfirmed, None)

    def release(self) -> None:
        """Resume reading from clients held because of other clients' bytes, if there is room."""
        if self._held and self.waiting_bytes < self._settings.waiting_bytes_max // 2:
            for unconfirmed in [each for each in self._held if each.waits_for_others]:
                unconfirmed.release()

    def note_unfinished(self, connection: Connection, size: int) -> None:
        """Note the size of the incomplete frames and messages of a connection."""
        before = self._unfinished.get(connection, 0)
        if size == before:
            return
        if size:
            self._unfinished[connection] = size
        else:
            self._unfinished.pop(connection, None)
        self.unfinished_bytes += size - before
        self._memory.note(self.unfinished_bytes)
        if self.unfinished_bytes > self._settings.unfinished_bytes_max:
            self._end_oldest()

    def _end_oldest(self) -> None:
        """End the connection with the oldest incomplete input, of those with an average share."""
        share = self.unfinished_bytes / len(self._unfinished)
        large = (each for each, size in self._unfinished.items() if size >= share)
        oldest = min(large, key=lambda each: each.unfinished_since_ms or 0)
        self.note_unfinished(oldest, 0)
        oldest.end(Ended.UNFINISHED, RESOURCE_LIMIT_EXCEEDED, texts.TOO_MUCH_UNFINISHED)

    def note_unread(self, connection: Connection) -> None:
        """Note that a client has stopped reading."""
        self._unread[connection] = None
        if len(self._unread) > self._settings.unread_max:
            next(iter(self._unread)).end_unread()

    def note_read(self, connection: Connection) -> None:
        """Note that a client has read most of the output."""
        self._unread.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection; its unconfirmed bytes still count."""
        self.note_unfinished(connection, 0)
        self.note_read(connection)
