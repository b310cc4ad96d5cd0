"""Locks of messages: their tokens, and the timer that ends a lock at its instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from bridge.machine.queue.locks import Lock, Locks
from bridge.message.alarm import Alarm, Later
from bridge.message.held import Held

TOKEN_BYTES = 16

Locked = tuple[Any, Held[Any]]
"""The owner of a message, which has its entity's definition as `queue`, and the message."""


class LockTable:
    """Locks, each of a message and its owner.

    Args:
        on_expired: called with each owner and message whose lock has expired.
        now_ms: returns UTC, ms.
        later: calls a function after some seconds.
        chance: returns the given number of random bytes.

    Attributes:
        instance: the first bytes of the next tokens; the others are random, so that no client can
            guess another client's token.
    """

    def __init__(
        self,
        on_expired: Callable[[Any, Held[Any]], None],
        *,
        now_ms: Callable[[], int],
        later: Later,
        chance: Callable[[int], bytes],
    ) -> None:
        self.instance = b""
        self._chance = chance
        self._secret_bytes = TOKEN_BYTES
        self._now_ms = now_ms
        self._on_expired = on_expired
        self._locks: Locks[Locked] = Locks()
        self._alarm = Alarm(self._expire, now_ms=now_ms, later=later)

    def __len__(self) -> int:
        return len(self._locks)

    def acquire(self, owner: Any, held: Held[Any], duration_ms: int) -> tuple[UUID, int]:
        """Lock a message from now; return its token and the end of its lock (UTC ms)."""
        token = self.instance + self._chance(self._secret_bytes)
        until_ms = self._locks.acquire(
            token,
            (owner, held),
            order=held.number,
            duration_ms=duration_ms,
            now_ms=self._now_ms(),
        )
        if until_ms < self._alarm.due_ms:
            self._alarm.set(until_ms)
        return UUID(bytes=token), until_ms

    def renew(self, tokens: Sequence[UUID]) -> list[int]:
        """Give locks their entity's LockDuration from now, so that they end together.

        Returns their new ends (UTC ms), without those that have ended.
        """
        at_ms = self._now_ms()
        ends = [self._renewed(token.bytes, at_ms) for token in tokens]
        return [each for each in ends if each is not None]

    def _renewed(self, token: bytes, at_ms: int) -> int | None:
        locked = self._locks.find(token, now_ms=at_ms)
        if locked is None:
            return None
        duration_ms = locked[0].queue.lock_duration_ms
        until_ms = self._locks.renew(token, duration_ms=duration_ms, now_ms=at_ms)
        self._alarm.set(until_ms)
        return until_ms

    def find(self, token: UUID) -> Locked | None:
        """Return the message of a lock, and its owner; `None` if the lock has ended."""
        return self._locks.find(token.bytes, now_ms=self._now_ms())

    def release(self, token: UUID) -> Lock[Locked] | None:
        """End a lock and return it, or `None` if it has ended already."""
        return self._locks.release(token.bytes, now_ms=self._now_ms())

    def restore(self, token: UUID, lock: Lock[Locked]) -> None:
        """Put a lock back whose settlement has failed; a pinned one goes on as `unpin` has it."""
        if lock.is_pinned:
            lock.unpin(self._now_ms())
        self._locks.restore(token.bytes, lock)
        self._alarm.set(lock.until_ms)

    def pin(self, token: UUID) -> Locked | None:
        """Keep a lock beyond its time; return its message and owner.

        `None`: the lock has ended, or is pinned already.
        """
        return self._locks.pin(token.bytes, now_ms=self._now_ms())

    def unpin(self, token: UUID) -> None:
        """Let a pinned lock go on with the time that it had left; no more if it was lost."""
        until_ms = self._locks.unpin(token.bytes, now_ms=self._now_ms())
        if until_ms is not None:
            self._alarm.set(until_ms)

    def take_pinned(self, token: UUID) -> Lock[Locked] | None:
        """End a pinned lock and return it, or `None` if it was lost."""
        return self._locks.take_pinned(token.bytes)

    def lose_channel(self, channel: object) -> None:
        """Drop the locks of a channel's messages: RabbitMQ has taken the messages back."""
        self._locks.lose(lambda locked: locked[1].channel is channel)

    def lose_owner(self, owner: object) -> None:
        """Drop the locks of an owner's messages: it does not hold them any more."""
        self._locks.lose(lambda locked: locked[0] is owner)

    def end_all(self) -> list[Locked]:
        """End all locks; return their messages by number, each with its owner."""
        return self._locks.lose(lambda locked: True)

    def close(self) -> None:
        """Stop the timer; locks end with their channels."""
        self._alarm.stop()

    def _expire(self) -> None:
        for owner, held in self._locks.expire(self._now_ms()):
            self._on_expired(owner, held)
        self._alarm.set(self._locks.next_end_ms())
