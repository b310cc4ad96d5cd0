"""The fate of a message: available to a receiver, expired, or delivered too often."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from bridge.message.message import Message
from bridge.model import entity as model
from bridge.model.forwarding import target_of


class Place(Protocol):
    """The queue in which a message is."""

    @property
    def queue(self) -> model.ReceiveEntity:
        """The entity's definition."""

    @property
    def resource(self) -> str:
        """The RabbitMQ queue's name."""

    @property
    def is_dead_letter(self) -> bool:
        """Whether the queue is a dead-letter queue."""


class Fate(Enum):
    """The fate of a message."""

    AVAILABLE = auto()
    """A receiver may receive the message."""
    EXPIRED = auto()
    """The message has expired."""
    DELIVERY_COUNT_EXCEEDED = auto()
    """The message has failed too many deliveries."""


def fate_of(message: Message, place: Place, now_ms: int) -> Fate:
    """Return the fate of a numbered message that waits for a receiver.

    A message of TTL 0 is available, when RabbitMQ has found a waiting consumer for it.
    """
    expires_ms = message.expires_ms
    if message.time_to_live_ms and expires_ms is not None and expires_ms <= now_ms:
        return Fate.EXPIRED
    if message.failures < place.queue.max_delivery_count or place.is_dead_letter:
        return Fate.AVAILABLE
    # Being forwarded is no delivery.
    return Fate.AVAILABLE if target_of(place.queue) else Fate.DELIVERY_COUNT_EXCEEDED


def fate_of_failed(message: Message, place: Place, now_ms: int) -> Fate:
    """Return the fate of a message whose delivery has failed just now."""
    if message.expires_ms is not None and message.expires_ms <= now_ms:
        return Fate.EXPIRED
    if message.failures + 1 >= place.queue.max_delivery_count and not place.is_dead_letter:
        return Fate.DELIVERY_COUNT_EXCEEDED
    return Fate.AVAILABLE


def is_stray(message: Message, place: Place, active_exchange: str) -> bool:
    """Whether a message must go back through the front exchange and get a number."""
    if place.is_dead_letter:
        return message.has_died_unnumbered
    return not message.has_come_through(active_exchange)
