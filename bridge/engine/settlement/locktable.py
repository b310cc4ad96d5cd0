"""The locks of this process: tokens, and the timer that ends a lock at its instant.

A token is 16 bytes. The first 6 name the bridge that holds the lock: any bridge can tell which
bridge to ask for a settlement. The other 10 are random: no client can guess another client's token.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
        on_expired: called with each message whose lock has expired.
        chance: returns the given number of random bytes.

    Attributes:
        instance: 6 bytes that name this process while its extra consuming connection lasts.
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
        """Set and return a new random name; tokens with earlier names still count as own."""
        self.instance = self._chance(INSTANCE_BYTES)
        self._instances.add(self.instance)
        return self.instance

    def is_own(self, token: UUID) -> bool:
        """Return whether this process has issued a token."""
        return token.bytes[:INSTANCE_BYTES] in self._instances

    def is_named(self, bridge: bytes) -> bool:
        """Return whether a bridge name is, or was, this process's."""
        return bridge in self._instances

    def acquire(self, owner: Owner, holding: HeldMessage, duration_ms: int) -> tuple[UUID, int]:
        """Lock a message from now; return its token and the end of its lock (UTC ms)."""
        token = self.instance + self._chance(_SECRET_BYTES)
        until_ms = self._locks.acquire(
            token,
            (owner, holding),
            order=holding.number,
            duration_ms=duration_ms,
            now_ms=now_ms(),
        )
        if until_ms < self._alarm.due_ms:
            self._alarm.set(until_ms)
        return UUID(bytes=token), until_ms

    def renew(self, tokens: Sequence[UUID]) -> list[int]:
        """Give locks their entity's LockDuration from now, so that they end together.

        Returns their new ends (UTC ms), without those that have ended.
        """
        at_ms = now_ms()
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
        return self._locks.find(token.bytes, now_ms=now_ms())

    def release(self, token: UUID) -> Lock[Locked] | None:
        """End a lock and return it, or `None` if it has ended already."""
        return self._locks.release(token.bytes, now_ms=now_ms())

    def restore(self, token: UUID, lock: Lock[Locked]) -> None:
        """Put a lock back whose settlement has failed."""
        self._locks.restore(token.bytes, lock)
        self._alarm.set(lock.until_ms)

    def lose_channel(self, channel: Channel) -> None:
        """Drop the locks of a channel's messages: RabbitMQ has taken the messages back."""
        self._locks.lose(lambda locked: locked[1].channel is channel)

    def lose_owner(self, owner: Owner) -> None:
        """Drop the locks of an owner's messages: it does not hold them any more."""
        self._locks.lose(lambda locked: locked[0] is owner)

    def end_all(self) -> list[Locked]:
        """End all locks; return their messages by number, each with its owner."""
        return self._locks.lose(lambda locked: True)

    def close(self) -> None:
        """Stop the timer; locks end with their channels."""
        self._alarm.stop()

    def _expire(self) -> None:
        for owner, holding in self._locks.expire(now_ms()):
            self._on_expired(owner, holding)
        self._alarm.set(self._locks.next_end_ms())
