"""Whether a message that a source gives comes next, in a route that keeps an entity's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.relay.machine.first_numbers import FirstNumbers
from bridge.relay.machine.lowest import partition_of
from bridge.relay.running.judgement import number_of
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteError
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
        self._partitions: dict[int, FirstNumbers] = {}

    async def first_early(self, found: Sequence[RemoteDelivery]) -> tuple[int, str] | None:
        """Return the place of the first message that may not be taken yet, and why; else `None`."""
        for place, each in enumerate(found):
            number = number_of(each)
            first = self._of(number)
            try:
                await self._look(first, number)
            except RemoteError as error:
                return place, f"what stands before message {number} is not known: {error}"
            missing = first.missing(number)
            if missing is not None:
                text = f"message {missing} stands before those that came, and another has its lock"
                return place, text
        return None

    def _of(self, number: int) -> FirstNumbers:
        partition = partition_of(number)
        if partition not in self._partitions:
            self._partitions[partition] = FirstNumbers(self._begun_ms, partition)
        return self._partitions[partition]

    async def _look(self, first: FirstNumbers, number: int) -> None:
        at = first.look_from(number, self._now_ms())
        while at is not None and at <= number:
            page = [
                (int(each.sequence_number or 0), each)
                for each in await self._management.peek(at, PAGE)
            ]
            own = [each for each in page if partition_of(each[0]) == partition_of(number)]
            to = own[-1][0] + 1 if own else number + 1
            coming = [at for at, each in own if self._comes(each)]
            first.looked(coming, to)
            at = None if coming else to

    def _comes(self, message: RemoteMessage) -> bool:
        """Whether a message of a peek may still come: what has expired is shown for a while."""
        if message.state != "active":
            return False
        enqueued_ms, ttl_ms = message.enqueued_time_ms, message.ttl_ms
        if not self._expires or enqueued_ms is None or ttl_ms is None:
            return True
        return int(enqueued_ms) + ttl_ms > self._now_ms()
