"""Messages that are to be sent, in batches that a namespace takes. Pure.

A batch is one transfer: Service Bus takes all of it or nothing. Only neighbors of the same session
and the same partition key share one, as a partitioned entity demands; so the order is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.remote.message import RemoteMessage

MESSAGES_MAX: Final = 500
"""Messages of a batch: what may be in doubt when a connection breaks."""

BYTES_MAX: Final = 256 * 1024
"""Bytes of a batch where the entity has not said: Azure's Standard tier."""

OVERHEAD: Final = 16
"""Bytes that a message takes in a batch besides its own."""

RESERVED: Final = 1024
"""Bytes of a batch for what stands in front of its messages."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A message, and which one of the input it is, from 1; `place` names it for people."""

    number: int
    place: str
    message: RemoteMessage


class Batching:
    """Collects messages until a batch is full.

    Args:
        bytes_max: bytes of a batch, 0: what Azure's Standard tier takes.
        messages_max: messages of a batch.
    """

    def __init__(self, bytes_max: int, messages_max: int = MESSAGES_MAX) -> None:
        self._bytes_max = (bytes_max or BYTES_MAX) - RESERVED
        self._messages_max = max(1, min(messages_max, MESSAGES_MAX))
        self._batch: list[Numbered] = []
        self._bytes = 0
        self._key: object = None

    def add(self, numbered: Numbered) -> list[Numbered]:
        """Add a message; return the batch that is complete without it, empty if none is."""
        message = numbered.message
        key = (message.session_id, message.partition_key)
        size = message.size_bytes + OVERHEAD
        is_full = (
            len(self._batch) >= self._messages_max
            or self._bytes + size > self._bytes_max
            or key != self._key
        )
        found = self.rest() if is_full else []
        self._batch.append(numbered)
        self._bytes += size
        self._key = key
        return found

    def rest(self) -> list[Numbered]:
        """Return what was not returned yet."""
        found, self._batch, self._bytes = self._batch, [], 0
        return found
