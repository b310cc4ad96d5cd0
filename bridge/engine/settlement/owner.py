"""What a locked message belongs to: where it is settled, and what settling means there."""

from __future__ import annotations

from typing import Protocol

from bridge.engine.settlement.departure import Origin
from bridge.engine.settlement.holding import Holding
from bridge.model.name import EntityPath


class Owner(Origin, Protocol):
    """Active messages, dead letters, or what was deferred of either.

    Attributes:
        path: the entity and sub-queue whose messages these are.
    """

    path: EntityPath

    @property
    def is_deferred(self) -> bool:
        """Whether they are deferred: given back, they are not available to receivers."""

    def holds(self, holding: Holding) -> bool:
        """Whether RabbitMQ still counts on this process to settle a message."""

    def ack(self, holding: Holding, point: str) -> None:
        """Settle a message for good."""

    def give_back(self, holding: Holding, point: str) -> None:
        """Make a message available again, one more on its count."""

    def release(self, holding: Holding) -> None:
        """Make a message available again without counting."""

    def departing(self, holding: Holding) -> None:
        """A message is about to be handed over to another queue, and acked here then."""

    def stayed(self, holding: Holding) -> None:
        """A message that was about to be handed over was not."""
