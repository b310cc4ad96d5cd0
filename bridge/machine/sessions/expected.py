"""Messages that RabbitMQ is to bring again, and how long they are waited for."""

from __future__ import annotations

import heapq
from typing import Any

from bridge.machine.sessions.place import COMING, Place

GRACE_MS = 5_000
"""RabbitMQ itself ends what expires while it is on its way here: after its time it is waited for so
much longer."""


class Expected:
    """What is to come, by when it is given up; of what never expires nothing is noted."""

    def __init__(self) -> None:
        self._overdue: list[tuple[int, int, Place[Any]]] = []

    def add(self, place: Place[Any], now_ms: int) -> None:
        """A message is to come."""
        place.state = COMING
        if place.expires_ms is not None:
            entry = (max(place.expires_ms, now_ms) + GRACE_MS, place.number, place)
            heapq.heappush(self._overdue, entry)

    def due_ms(self) -> int | None:
        """Return when the next one is given up."""
        return self._overdue[0][0] if self._overdue else None

    def take_overdue(self, now_ms: int) -> list[Place[Any]]:
        """Return what is given up now; it may have come meanwhile, or be gone."""
        found: list[Place[Any]] = []
        while self._overdue and self._overdue[0][0] <= now_ms:
            found.append(heapq.heappop(self._overdue)[2])
        return found

    def clear(self) -> None:
        """Nothing is to come."""
        self._overdue.clear()
