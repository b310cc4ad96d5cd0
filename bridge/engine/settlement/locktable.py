"""The locks of this process: tokens, and the timer that ends a lock at its instant.

A token is 16 bytes: 6 that name the bridge which holds the lock, so that any bridge sees whose lock
it is asked to settle, and 10 at random, so that nobody can settle what he was not given.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from uuid import UUID

from bridge.broker.connection.channel import Channel
from bridge.engine.alarm import Alarm
from bridge.engine.clock import now_ms
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.owner import Owner
from bridge.machine.locks import Lock, Locks

Locked = tuple[Owner, HeldMessage]

INSTANCE_BYTES = 6
_SECRET_BYTES = 10


class LockTable:
    """All locks of one process.

    Args:
        on_expired: called when a lock has ended at its instant.
        chance: returns so many random bytes.

    Attributes:
        instance: 6 bytes that name this process while its consuming connection lasts.
    """

    def __init__(
        self,
        on_expired: Callable[[Owner, HeldMessage], None],
        chance: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.instance = b""
        self._instances: set[bytes] = set()
        self._chance = chance
        self.rename()
        self._on_expired = on_expired
        self._locks: Locks[Locked] = Locks()
        self._alarm = Alarm(self._expire)

    def __len__(self) -> int:
        return len(self._locks)

    def rename(self) -> bytes:
        """Take a name that was never used, and return it; tokens of the earlier ones stay own."""
        self.instance = self._chance(INSTANCE_BYTES)
        self._instances.add(self.instance)
        return self.instance

    def is_own(self, token: UUID) -> bool:
        """Whether this process has given the token."""
        return token.bytes[:INSTANCE_BYTES] in self._instances

    def is_named(self, bridge: bytes) -> bool:
        """Whether this process has, or had, a name."""
        return bridge in self._instances

    def acquire(self, owner: Owner, holding: HeldMessage, duration_ms: int) -> tuple[UUID, int]:
        """Lock a message from now; return its token and the end of its lock (UTC ms)."""
        token = self.instance + self._chance(_SECRET_BYTES)
        until_ms = self._locks.acquire(
            token, (owner, holding), duration_ms=duration_ms, now_ms=now_ms()
        )
        if until_ms < self._alarm.due_ms:
            self._alarm.set(until_ms)
        return UUID(bytes=token), until_ms

    def renew(self, token: UUID) -> int | None:
        """Give a lock its entity's LockDuration from now.

        Returns its new end (UTC ms), or `None` if it has ended.
        """
        locked = self.find(token)
        if locked is None:
            return None
        duration_ms = locked[0].queue.lock_duration_ms
        until_ms = self._locks.renew(token.bytes, duration_ms=duration_ms, now_ms=now_ms())
        self._alarm.set(until_ms)
        return until_ms

    def find(self, token: UUID) -> Locked | None:
        """Return what the token holds, or `None` if its lock has ended."""
        return self._locks.find(token.bytes, now_ms=now_ms())

    def release(self, token: UUID) -> Lock[Locked] | None:
        """End a lock and return it, or `None` if it has ended already."""
        return self._locks.release(token.bytes, now_ms=now_ms())

    def restore(self, token: UUID, lock: Lock[Locked]) -> None:
        """Put a lock back whose settlement has failed."""
        self._locks.restore(token.bytes, lock)
        self._alarm.set(lock.until_ms)

    def lose_channel(self, channel: Channel) -> None:
        """Drop the locks of messages that RabbitMQ has taken back with their channel."""
        self._locks.lose(lambda locked: locked[1].channel is channel)

    def lose_owner(self, owner: Owner) -> None:
        """Drop the locks of messages that their owner has lost."""
        self._locks.lose(lambda locked: locked[0] is owner)

    def end_all(self) -> list[Locked]:
        """End all locks; return what they held."""
        return self._locks.lose(lambda locked: True)

    def close(self) -> None:
        """Stop the timer; locks end with their channels."""
        self._alarm.stop()

    def _expire(self) -> None:
        for owner, holding in self._locks.expire(now_ms()):
            self._on_expired(owner, holding)
        self._alarm.set(self._locks.next_end_ms())
