"""Messages as a receiver has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from bridge.remote.message import RemoteMessage


@dataclass(frozen=True, slots=True, eq=False)
class RemoteDelivery:
    """A message that a receiver was given.

    Attributes:
        lock_token: names the lock; `None` for one that was received and deleted.
        delivery_tag: the tag on the wire, of which a lock token is made.
    """

    message: RemoteMessage
    lock_token: UUID | None
    delivery_tag: bytes
    place: Any = field(default=None, repr=False)
    """What the receiver finds the delivery by; `None` for one that was received by its number."""


def token_of_tag(tag: bytes) -> UUID | None:
    """Return the lock token of a delivery tag: .NET's bytes of a Guid; `None` if it is none."""
    return UUID(bytes_le=tag) if len(tag) == 16 else None
