"""The locks of this process, with tokens that name it.

A token is 16 bytes. The first 6 name the bridge that holds the lock: any bridge can tell which
bridge to ask for a settlement. The other 10 are random.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from uuid import UUID

from bridge.engine.clock import later, now_ms
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.owner import Owner
from bridge.message import locktable
from bridge.message.locktable import TOKEN_BYTES

Locked = tuple[Owner, HeldMessage]

INSTANCE_BYTES = 6


class ProcessLocks(locktable.LockTable):
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
        super().__init__(on_expired, now_ms=now_ms, later=later, chance=chance)
        self._secret_bytes = TOKEN_BYTES - INSTANCE_BYTES
        self._instances: set[bytes] = set()
        self.rename()

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

    def owners(self) -> set[Owner]:
        """Return the owners of the messages whose locks have not ended."""
        return {owner for owner, _ in self._locks.held(now_ms())}
