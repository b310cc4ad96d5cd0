"""The rules of fate (`machine.queue.fate`), for the queues of an entity and their messages."""

from __future__ import annotations

from typing import Protocol

from bridge.machine.queue.fate import UNLIMITED, Fate, Rules
from bridge.message.message import DELIVERY_COUNT_EXCEEDED, EXPIRED, Message
from bridge.model import entity as model
from bridge.model.forwarding import target_of


class MessagePlace(Protocol):
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


def rules_of(queue: model.ReceiveEntity, *, is_dead_letter: bool = False) -> Rules:
    """Return the rules of an entity's messages, or of its dead letters, which never end."""
    if is_dead_letter:
        return Rules(UNLIMITED)
    return Rules(queue.max_delivery_count, is_forwarded=bool(target_of(queue)))


def fate_of_failed(message: Message, place: MessagePlace, now_ms: int) -> Fate:
    """Return the fate of a message whose delivery has failed just now."""
    rules = rules_of(place.queue, is_dead_letter=place.is_dead_letter)
    return rules.of_failed(message.expires_ms, message.failures, now_ms)


def death_of(fate: Fate, queue: model.ReceiveEntity) -> tuple[str, str] | None:
    """Return reason and description of the dead letter that an ended message becomes.

    `None`: it expired, and its entity does not keep expired messages.
    """
    assert fate is not Fate.AVAILABLE, "it has not ended"
    if fate is Fate.DELIVERY_COUNT_EXCEEDED:
        return DELIVERY_COUNT_EXCEEDED
    return EXPIRED if queue.dead_lettering_on_message_expiration else None


def failures_of(message: Message, place: MessagePlace) -> int:
    """Return a message's failed deliveries; those of a dead letter ended when it became one."""
    if place.is_dead_letter:
        return message.died_after(place.queue.max_delivery_count)
    return message.failures


def is_stray(message: Message, place: MessagePlace, active_exchange: str) -> bool:
    """Whether a message must go back through the front exchange and get a number."""
    if place.is_dead_letter:
        return message.has_died_unnumbered
    return not message.has_come_through(active_exchange)
