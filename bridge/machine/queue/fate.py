"""The fate of a message by its TTL and its failed deliveries: the one place of these rules.

RabbitMQ counts, too, what it takes back: its policy names the delivery limit and the TTL
(`topology.flavour`).
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

UNLIMITED = 1 << 31
"""More failed deliveries than any message has."""


class Fate(Enum):
    """The fate of a message."""

    AVAILABLE = "available"
    """A receiver may receive the message."""
    EXPIRED = "expired"
    """The message has expired."""
    DELIVERY_COUNT_EXCEEDED = "delivery count exceeded"
    """The message has failed too many deliveries."""


class EndFacts(Protocol):
    """A message by what may end it; see `message.message.Message`."""

    expires_ms: int | None
    time_to_live_ms: int | None
    failures: int


class Rules:
    """The rules of one queue.

    Args:
        failures_max: so many failed deliveries end a message (MaxDeliveryCount).
        is_forwarded: the queue's messages are sent on to another entity, which is no delivery.

    Attributes:
        failures_max: as given.
        waiting_max: so many failed deliveries end a message that waits.
    """

    def __init__(self, failures_max: int, *, is_forwarded: bool = False) -> None:
        self.failures_max = failures_max
        self.waiting_max = UNLIMITED if is_forwarded else failures_max

    def __repr__(self) -> str:
        return f"Rules({self.failures_max}, {self.waiting_max})"

    def of_message(self, message: EndFacts, now_ms: int) -> Fate:
        """Return the fate of a numbered message that waits for a receiver.

        A message of TTL 0 is available, when RabbitMQ has found a waiting consumer for it.
        """
        expires_ms = message.expires_ms if message.time_to_live_ms else None
        return self.of_waiting(expires_ms, message.failures, now_ms)

    def of_waiting(self, expires_ms: int | None, failures: int, now_ms: int) -> Fate:
        """Return the fate of a message that waits for a receiver.

        Args:
            expires_ms: when it expires (UTC ms), or `None` for never.
            failures: its failed deliveries.
        """
        if expires_ms is not None and expires_ms <= now_ms:
            return Fate.EXPIRED
        if failures < self.waiting_max:
            return Fate.AVAILABLE
        return Fate.DELIVERY_COUNT_EXCEEDED

    def of_failed(self, expires_ms: int | None, failures: int, now_ms: int) -> Fate:
        """Return the fate of a message whose delivery has failed just now.

        Args:
            expires_ms: when it expires (UTC ms), or `None` for never.
            failures: its failed deliveries before this one.
        """
        if expires_ms is not None and expires_ms <= now_ms:
            return Fate.EXPIRED
        if failures + 1 < self.failures_max:
            return Fate.AVAILABLE
        return Fate.DELIVERY_COUNT_EXCEEDED
