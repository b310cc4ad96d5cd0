"""What is to become of a message: whether a receiver may have it, and what if none may."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from bridge.message.message import Message
from bridge.model import entity as model
from bridge.model.forwarding import target_of


class Place(Protocol):
    """Where a message is."""

    @property
    def queue(self) -> model.ReceiveEntity:
        """The entity's definition."""

    @property
    def resource(self) -> str:
        """The RabbitMQ queue's name."""

    @property
    def is_dead_letter(self) -> bool:
        """Whether that is a dead-letter queue."""


class Fate(Enum):
    """What is to become of a message."""

    AVAILABLE = auto()
    """A receiver may have it."""
    EXPIRED = auto()
    """Its time is over."""
    DELIVERY_COUNT_EXCEEDED = auto()
    """It has failed too often."""


def fate_of(message: Message, place: Place, now_ms: int) -> Fate:
    """Return what is to become of a numbered message that waits for a receiver.

    One of TTL 0 may be had, when RabbitMQ has found somebody who waits for it.
    """
    expires_ms = message.expires_ms
    if message.time_to_live_ms and expires_ms is not None and expires_ms <= now_ms:
        return Fate.EXPIRED
    if message.failures < place.queue.max_delivery_count or place.is_dead_letter:
        return Fate.AVAILABLE
    # Being forwarded is no delivery.
    return Fate.AVAILABLE if target_of(place.queue) else Fate.DELIVERY_COUNT_EXCEEDED


def fate_of_failed(message: Message, place: Place, now_ms: int) -> Fate:
    """Return what is to become of a message whose delivery has failed just now."""
    if message.expires_ms is not None and message.expires_ms <= now_ms:
        return Fate.EXPIRED
    if message.failures + 1 >= place.queue.max_delivery_count and not place.is_dead_letter:
        return Fate.DELIVERY_COUNT_EXCEEDED
    return Fate.AVAILABLE


def is_stray(message: Message, place: Place, active_exchange: str) -> bool:
    """Whether a message is to be sent back through the front exchange and numbered."""
    if place.is_dead_letter:
        return message.has_died_unnumbered
    return not message.has_come_through(active_exchange)
