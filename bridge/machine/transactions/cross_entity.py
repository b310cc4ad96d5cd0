"""Sessions across entities: their clients send to several entities in one transaction.

Clients say so by a coordinator's link that comes first in a session, before all others. The first
entity of such a session is pinned in all its transactions, and sends to others go by way of it.
"""

from __future__ import annotations

from collections.abc import Hashable

from bridge.machine.transactions import refusals
from bridge.model.errors import ServiceBusError


class CrossEntitySessions:
    """The sessions of a connection that have links; those across entities are told apart."""

    def __init__(self) -> None:
        self._vias: dict[Hashable, str | None] = {}

    def coordinator_attached(self, session: Hashable) -> None:
        """Note a coordinator's link; the first link of a session makes it one across entities."""
        self._vias.setdefault(session, None)

    def link_attached(self, session: Hashable, entity: str) -> None:
        """Note a link to or from an entity, or to its `$management`.

        Args:
            entity: the key of the queue or topic, as in operations.
        """
        if self._vias.setdefault(session, "") is None:
            self._vias[session] = entity

    def via(self, session: Hashable) -> str:
        """Return the entity that a session across entities pins; "" for another session."""
        return self._vias.get(session) or ""

    def refusal_of_receiver(self, session: Hashable, entity: str) -> ServiceBusError | None:
        """Return why a session takes no receiver of an entity; `None` if it takes one.

        What would be received there could be settled in no transaction of the session.
        """
        return refusals.several_entities() if self.via(session) not in ("", entity) else None

    def ended(self, session: Hashable) -> None:
        """Forget a session."""
        self._vias.pop(session, None)

    def clear(self) -> None:
        """Forget all sessions."""
        self._vias.clear()
