"""Limits of unfinished, unconfirmed and unread bytes over all connections of a gateway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bridge.gateway.client import texts
from bridge.gateway.client.admission import ConnectionEnd
from bridge.gateway.client.memory import ReleasedMemory
from bridge.gateway.client.settings import GatewaySettings
from bridge.machine.amqp10.faults import RESOURCE_LIMIT_EXCEEDED
from bridge.machine.transactions.held_bytes import HeldBytes


class Limited(Protocol):
    """A connection that is ended when its client takes more than its part."""

    @property
    def unfinished_since_ms(self) -> int | None:
        """Since when a frame or a message is incomplete; `None` if none is."""

    def end(self, reason: ConnectionEnd, condition: str, description: str) -> None:
        """Close the connection for a reason that is counted."""

    def end_unread(self) -> None:
        """End the connection of a client that does not read."""


class Backlog:
    """Counter of the bytes and clients that a gateway waits for, with limits over all connections.

    Too many bytes unconfirmed by RabbitMQ: clients are not read from until RabbitMQ has confirmed
    some. Too many bytes unfinished: of the connections with an average share or more, the
    connection whose frame or message has been incomplete for longest is ended. Too many clients
    that do not read: the client that stopped reading first loses its connection. Too many bytes of
    transactions: their next operation is refused.

    Attributes:
        waiting_bytes: bytes of messages that RabbitMQ has not confirmed, and of requests under way.
        unfinished_bytes: bytes of incomplete frames and messages.
        transacted: bytes of operations of transactions that are not discharged.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.waiting_bytes = 0
        self.unfinished_bytes = 0
        self.transacted = HeldBytes(settings.transacted_bytes_max)
        self._held: dict[UnconfirmedBytes, None] = {}
        self._unfinished: dict[Limited, int] = {}
        self._unread: dict[Limited, None] = {}
        self._memory = ReleasedMemory()

    def __repr__(self) -> str:
        return (
            f"<Backlog waiting={self.waiting_bytes} unfinished={self.unfinished_bytes} "
            f"unread={len(self._unread)}>"
        )

    @property
    def is_full(self) -> bool:
        """Whether the unconfirmed bytes exceed their limit."""
        return self.waiting_bytes > self._settings.waiting_bytes_max

    def hold(self, unconfirmed: UnconfirmedBytes) -> None:
        """Note that a client is not read from because of unconfirmed bytes."""
        self._held[unconfirmed] = None

    def let_go(self, unconfirmed: UnconfirmedBytes) -> None:
        """Note that a client is read again."""
        self._held.pop(unconfirmed, None)

    def release(self) -> None:
        """Resume reading from clients held because of other clients' bytes, if there is room."""
        if self._held and self.waiting_bytes < self._settings.waiting_bytes_max // 2:
            for unconfirmed in [each for each in self._held if each.waits_for_others]:
                unconfirmed.release()

    def note_unfinished(self, connection: Limited, size: int) -> None:
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
        oldest.end(ConnectionEnd.UNFINISHED, RESOURCE_LIMIT_EXCEEDED, texts.TOO_MUCH_UNFINISHED)

    def note_unread(self, connection: Limited) -> None:
        """Note that a client has stopped reading."""
        self._unread[connection] = None
        if len(self._unread) > self._settings.unread_max:
            next(iter(self._unread)).end_unread()

    def note_read(self, connection: Limited) -> None:
        """Note that a client has read most of the output."""
        self._unread.pop(connection, None)

    def forget(self, connection: Limited) -> None:
        """Forget a closed connection; its unconfirmed bytes still count."""
        self.note_unfinished(connection, 0)
        self.note_read(connection)


class UnconfirmedBytes:
    """Bytes of one client: messages that RabbitMQ has not confirmed, and requests under way.

    Above a limit, of this client or of all, the client is held.

    Args:
        backlog: the unconfirmed bytes of all clients.

    Attributes:
        is_held: the client is not read from.
    """

    def __init__(self, backlog: Backlog, high: int, on_released: Callable[[], object]) -> None:
        self._backlog = backlog
        self._high = high
        self._on_released = on_released
        self._bytes = 0
        self._is_over = False
        self.is_held = False

    def count(self, change: int) -> None:
        """Count bytes that arrived (above 0), or were confirmed or refused by RabbitMQ (below)."""
        self._bytes += change
        backlog = self._backlog
        backlog.waiting_bytes += change
        if change > 0:
            is_much = self._bytes > self._high or backlog.is_full
            if is_much and not self.is_held and not self._is_over:
                self.is_held = True
                backlog.hold(self)
        elif self.waits_for_others and not (backlog.is_full and self._bytes):
            self.release()
        backlog.release()

    def release(self) -> None:
        """Read the client again: RabbitMQ has confirmed enough."""
        if self.is_held:
            self.is_held = False
            self._backlog.let_go(self)
            self._on_released()

    def end(self) -> None:
        """Forget a disconnected client; its messages under way still count."""
        self._is_over = True
        self._backlog.let_go(self)

    @property
    def waits_for_others(self) -> bool:
        """Whether the client has few unconfirmed bytes: if held, then because of others."""
        return self._bytes < self._high // 2
