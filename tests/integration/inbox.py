"""What a test has received, to be waited for."""

from __future__ import annotations

import asyncio

from bridge.broker.connection.delivery import Delivery

WITHIN_S = 120.0

QUORUM = {"x-queue-type": "quorum"}


class Inbox:
    """Keeps deliveries in their order; it is what `consume` calls."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self._more = asyncio.Event()

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self._more.set()

    @property
    def bodies(self) -> list[bytes]:
        """What came so far."""
        return [delivery.body for delivery in self.deliveries]

    async def until(self, count: int) -> list[Delivery]:
        """Wait until so many have come and return them all."""
        async with asyncio.timeout(WITHIN_S):
            while len(self.deliveries) < count:
                self._more.clear()
                await self._more.wait()
        return self.deliveries
