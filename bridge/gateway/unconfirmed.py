"""Unconfirmed bytes of a client: messages that RabbitMQ has not confirmed, and requests."""

from __future__ import annotations

from collections.abc import Callable

from bridge.gateway.backlog import Backlog


class Unconfirmed:
    """Counter of unconfirmed bytes; above a limit, of this client or of all, the client is held.

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
