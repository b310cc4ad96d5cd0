"""What one client has sent that RabbitMQ has not confirmed."""

from __future__ import annotations

from collections.abc import Callable

from bridge.gateway.backlog import Backlog


class Unconfirmed:
    """Counts it; of too much, of this client or of all, the client is not read from.

    Args:
        backlog: what waits of all clients.
        high: so many bytes of one client are too many.
        on_released: called when the client may be read again.

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
        """Count bytes that came (above 0), or that RabbitMQ has confirmed or refused (below)."""
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
        """RabbitMQ has taken enough: the client is read again."""
        if self.is_held:
            self.is_held = False
            self._backlog.let_go(self)
            self._on_released()

    def end(self) -> None:
        """The client is gone; what is under way still counts."""
        self._is_over = True
        self._backlog.let_go(self)

    @property
    def waits_for_others(self) -> bool:
        """Whether little of it is this client's: if it is held, then for what others have sent."""
        return self._bytes < self._high // 2
