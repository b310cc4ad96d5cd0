"""What a locked message belongs to: where it is settled, and what settling means there."""

from __future__ import annotations

from typing import Protocol

from bridge.engine.settlement.departure import Source
from bridge.engine.settlement.held_message import HeldMessage
from bridge.model.name import EntityPath


class Owner(Source, Protocol):
    """Active messages, dead letters, or what was deferred of either.

    Attributes:
        path: the entity and sub-queue whose messages these are.
    """

    path: EntityPath

    def holds(self, holding: HeldMessage) -> bool:
        """Whether RabbitMQ still counts on this process to settle a message."""

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Settle a message for good."""

    def give_back(self, holding: HeldMessage, point: str) -> None:
        """Make a message available again, one more on its count."""

    def release(self, holding: HeldMessage) -> None:
        """Make a message available again without counting."""

    def departing(self, holding: HeldMessage) -> None:
        """A message is about to be handed over to another queue, and acked here then."""

    def stayed(self, holding: HeldMessage) -> None:
        """A message that was about to be handed over was not."""
