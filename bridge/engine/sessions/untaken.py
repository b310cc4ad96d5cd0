"""Received-and-deleted messages that were sent to receivers, and are in no client's output yet."""

from __future__ import annotations

import itertools

from bridge.engine.settlement.held_message import HeldMessage
from bridge.wire.sessions import Key


class Untaken:
    """The messages of one shard, by receiver and a number of their own."""

    def __init__(self) -> None:
        self._held: dict[Key, dict[int, HeldMessage]] = {}
        self._numbers = itertools.count(1)

    def add(self, key: Key, holding: HeldMessage) -> int:
        """Add a message that is being sent to a receiver; return its number."""
        number = next(self._numbers)
        self._held.setdefault(key, {})[number] = holding
        return number

    def take(self, key: Key, number: int) -> HeldMessage | None:
        """Remove and return a message; `None`: the receiver has ended since."""
        return self._held.get(key, {}).pop(number, None)

    def forget(self, key: Key) -> None:
        """Forget the messages of a receiver that has ended."""
        self._held.pop(key, None)

    def clear(self) -> None:
        """Forget all messages."""
        self._held.clear()
