"""A client's locks on one queue's messages, and the timer that ends these locks."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

from bridge.client.core.holding import HeldMessage
from bridge.client.core.wire import Timer, Wire
from bridge.client.exceptions import MessageLockLostError
from bridge.machine.locks import Lock, Locks

LOCK_LOST = (
    "The lock on the message is lost: its time is over, its connection was lost, or the message "
    "was settled before."
)


class LockTable:
    """The locks by token, with the end of each.

    Args:
        on_lock_expired: called with a message whose lock has expired.
    """

    def __init__(self, wire: Wire, on_lock_expired: Callable[[HeldMessage], None]) -> None:
        self._wire = wire
        self._on_lock_expired = on_lock_expired
        self._locks: Locks[HeldMessage] = Locks()
        self._timer: Timer | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._locks)

    def acquire(self, held: HeldMessage, duration_ms: int) -> tuple[UUID, int]:
        """Lock a message; return its token and the lock's end (UTC ms)."""
        token, now_ms = uuid4(), self._wire.now_ms()
        until_ms = self._locks.acquire(
            token.bytes, held, order=held.number, duration_ms=duration_ms, now_ms=now_ms
        )
        self._watch()
        return token, until_ms

    def renew(self, token: UUID, duration_ms: int) -> int:
        """Give a lock its full duration from now; return its end (UTC ms).

        Raises:
            MessageLockLostError: the lock has ended.
        """
        now_ms = self._wire.now_ms()
        held = self._locks.find(token.bytes, now_ms=now_ms)
        until_ms = None
        if held is not None and not held.channel.is_closed:
            until_ms = self._locks.renew(token.bytes, duration_ms=duration_ms, now_ms=now_ms)
        if until_ms is None:
            raise MessageLockLostError(LOCK_LOST)
        self._watch()
        return until_ms

    def release(self, token: UUID) -> Lock[HeldMessage]:
        """End a lock and return it.

        Raises:
            MessageLockLostError: the lock has ended before.
        """
        lock = self._locks.release(token.bytes, now_ms=self._wire.now_ms())
        if lock is None or lock.held.channel.is_closed:
            raise MessageLockLostError(LOCK_LOST)
        return lock

    def restore(self, token: UUID, lock: Lock[HeldMessage]) -> None:
        """Put a lock back: its message has not left the queue."""
        self._locks.restore(token.bytes, lock)
        self._watch()

    def drop(self, token: UUID) -> None:
        """End a lock, if not ended yet."""
        self._locks.release(token.bytes, now_ms=self._wire.now_ms())

    def lose(self) -> None:
        """Forget all locks: RabbitMQ took the messages back."""
        self._locks.lose(lambda held: True)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        end_ms = self._locks.next_end_ms()
        if end_ms is None or (self._timer is not None and self._timer_ms <= end_ms):
            return
        self.close()
        self._timer_ms = end_ms
        wait_s = max(0.0, (end_ms - self._wire.now_ms()) / 1000) + 0.001
        self._timer = self._wire.later(wait_s, self._end)

    def _end(self) -> None:
        self._timer = None
        for held in self._locks.expire(self._wire.now_ms()):
            if not held.channel.is_closed:
                self._on_lock_expired(held)
        self._watch()
