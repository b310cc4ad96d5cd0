"""Looks at a source's first messages: how long they wait, and what can still come."""

from __future__ import annotations

import asyncio

from bridge.relay.machine.lowest import PARTITION_SHIFT
from bridge.relay.running.outlet import SourceNumbers
from bridge.relay.running.status import RouteStatus
from bridge.remote.errors import RemoteError
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage

WATCH_S = 5.0
"""How often a source is looked at."""

PAGE = 50
PAGES_MAX = 20
"""Messages of one request, and requests, until an active one is found behind deferred and
scheduled ones."""

FAR_BEHIND = RemoteMessage()
"""In place of a first message: it stands behind many that never come."""


class Watch:
    """Looks at one source.

    Args:
        managements: of the source; of a dead-letter queue the entity's own behind it, as an older
            message of it may be dead-lettered later.
    """

    def __init__(
        self, managements: tuple[RemoteManagement, ...], numbers: SourceNumbers, status: RouteStatus
    ) -> None:
        self._managements = managements
        self._numbers = numbers
        self._status = status
        self._from: dict[int, int] = {}

    async def run(self) -> None:
        """Look again and again; what fails is looked at again."""
        while True:
            try:
                await self._look()
            except RemoteError as error:
                self._status.failed(error)
            await asyncio.sleep(WATCH_S)

    async def _look(self) -> None:
        oldest: list[int] = []
        for partition in self._numbers.partitions:
            # The entity comes first: what it dead-letters meanwhile is seen once at least.
            places = reversed(range(len(self._managements)))
            found = [await self._first(each, partition) for each in places]
            first = found[-1]
            if isinstance(first, RemoteMessage) and first.enqueued_time_ms is not None:
                oldest.append(int(first.enqueued_time_ms))
            lowest = [int(each.sequence_number or 0) for each in found if each is not None]
            if lowest and not any(each is FAR_BEHIND for each in found):
                self._numbers.observe(min(lowest))
        self._status.saw_oldest(min(oldest, default=None))

    async def _first(self, place: int, partition: int) -> RemoteMessage | None:
        """Return the first message that may come; `None`: there is none.

        `FAR_BEHIND`: it is not known yet. What is scheduled or deferred in an entity never comes by
        the number that it has, so the next look goes on behind pages of nothing else; a deferred
        one may still become a dead letter. Into a dead-letter queue any older message may come, so
        each look begins at its beginning.
        """
        is_entity = place == len(self._managements) - 1
        number = partition << PARTITION_SHIFT
        if is_entity:
            number = self._from.get(partition, number)
        for _ in range(PAGES_MAX):
            page = await self._managements[place].peek(number, PAGE)
            for each in page:
                at = int(each.sequence_number or 0)
                if at >> PARTITION_SHIFT != partition:
                    return None
                if each.state == "active" or (place > 0 and each.state == "deferred"):
                    return each
            if not page:
                return None
            number = int(page[-1].sequence_number or 0) + 1
            if is_entity:
                self._from[partition] = number
        return FAR_BEHIND
