"""Which messages that a source gives come next, in a route that keeps an entity's order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bridge.relay.machine.entity_order import EntityOrder
from bridge.relay.machine.lowest import partition_of
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage

PAGE = 250
"""Azure's page of a peek."""


class SourceOrder:
    """Looks at a source, locked messages with the others, where what comes may not be the next.

    Args:
        expires: whether messages do there; in a dead-letter queue they do not.
    """

    def __init__(
        self, management: RemoteManagement, now_ms: Callable[[], int], *, expires: bool
    ) -> None:
        self._management = management
        self._expires = expires
        self._now_ms = now_ms
        self._begun_ms = now_ms()
        self._partitions: dict[int, EntityOrder] = {}

    async def next_of(self, early: Callable[[], Iterable[int]]) -> tuple[list[int], str]:
        """Return the numbers that come next, in order, and what the others wait for, in words.

        Args:
            early: returns the numbers of what has come and did not go on. It is asked behind each
                look at the source: locks end meanwhile.

        Raises:
            RemoteError: the source cannot be looked at.
        """
        while True:
            numbers: dict[int, list[int]] = {}
            for each in sorted(early()):
                numbers.setdefault(partition_of(each), []).append(each)
            if await self._look(numbers):
                continue
            now_ms = self._now_ms()
            taken = [self._of(each).take(some, now_ms) for each, some in numbers.items()]
            awaited = [missing for _, missing in taken if missing is not None]
            text = _awaited(min(awaited), self._management.entity) if awaited else ""
            return [each for found, _ in taken for each in found], text

    def _of(self, partition: int) -> EntityOrder:
        if partition not in self._partitions:
            self._partitions[partition] = EntityOrder(self._begun_ms, partition)
        return self._partitions[partition]

    async def _look(self, numbers: dict[int, list[int]]) -> bool:
        """Look at the source once, if anything has to be known; return whether that was so."""
        for partition, some in numbers.items():
            order = self._of(partition)
            at = order.look_from(some, self._now_ms())
            if at is None:
                continue
            page = [
                (int(each.sequence_number or 0), each)
                for each in await self._management.peek(at, PAGE)
            ]
            own = [each for each in page if partition_of(each[0]) == partition]
            to = own[-1][0] + 1 if own else max(some[-1], at) + 1
            coming = [number for number, each in own if self._comes(each)]
            order.looked(at, coming, to, self._now_ms())
            return True
        return False

    def _comes(self, message: RemoteMessage) -> bool:
        """Whether a message of a peek may still come: what has expired is shown for a while."""
        if message.state != "active":
            return False
        enqueued_ms, ttl_ms = message.enqueued_time_ms, message.ttl_ms
        if not self._expires or enqueued_ms is None or ttl_ms is None:
            return True
        return int(enqueued_ms) + ttl_ms > self._now_ms()


def _awaited(number: int, entity: str) -> str:
    return (
        f"message {number} of {entity} comes next and does not come: another receiver has it "
        "locked; complete it there, or end that receiver"
    )
