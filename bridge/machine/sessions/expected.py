"""Messages that RabbitMQ is to bring again, and how long to wait for them."""

from __future__ import annotations

import heapq
from typing import Any

from bridge.machine.sessions.entry import COMING, SessionEntry

GRACE_MS = 5_000
"""Wait beyond a message's expiration: RabbitMQ itself may end the message on its way here."""


class Expected:
    """Messages to come, by the end of their wait; messages without expiration are not noted."""

    def __init__(self) -> None:
        self._overdue: list[tuple[int, int, SessionEntry[Any]]] = []

    def add(self, place: SessionEntry[Any], now_ms: int) -> None:
        """Add a message that is to come."""
        place.state = COMING
        if place.expires_ms is not None:
            entry = (max(place.expires_ms, now_ms) + GRACE_MS, place.number, place)
            heapq.heappush(self._overdue, entry)

    def due_ms(self) -> int | None:
        """Return when the next wait ends."""
        return self._overdue[0][0] if self._overdue else None

    def take_overdue(self, now_ms: int) -> list[SessionEntry[Any]]:
        """Return the messages whose wait ends now; some may have come already, or have left."""
        found: list[SessionEntry[Any]] = []
        while self._overdue and self._overdue[0][0] <= now_ms:
            found.append(heapq.heappop(self._overdue)[2])
        return found

    def clear(self) -> None:
        """Forget all messages: none is to come."""
        self._overdue.clear()
