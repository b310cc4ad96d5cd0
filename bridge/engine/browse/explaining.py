"""What nobody has told of, found by RabbitMQ's own count of what is left.

Numbers are missing in the settled stream that were settled before anybody peeked, by a bridge that
was killed within 50 ms, or by a native consumer. Then RabbitMQ has fewer messages than are not
known to be gone, and the oldest of these are the ones that are gone: the journal is read back until
as many are found as RabbitMQ has. What is found so is never written down: a count may be wrong for
a while (RabbitMQ 3.10 counts nothing while it reads a queue's log), and is made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bridge.broker.errors import BrokerError
from bridge.broker.ready_counts import ReadyCounts
from bridge.broker.streams.stream_reader import Entry
from bridge.engine.browse.journal_scan import STOP
from bridge.engine.browse.view import BrowseView
from bridge.engine.clock import now_ms
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.machine.browse import Place, expires_ms, is_active_entry, newest
from bridge.model.errors import ServiceBusError
from bridge.topology import names
from bridge.topology.shards import active_queues

LOOK_S = 1.0
"""So often counts are looked at, while somebody peeks."""

QUIET_S = 0.1
"""Two equal counts so far apart are taken for exact."""

MARGIN = 100
"""Where messages come and go, so many more than were counted may be there."""

PATIENCE_S = 10.0
"""So long a peek waits for the journal to be read back; then it answers with what is known."""

Held = Callable[[str], Awaitable[list[int]]]
"""Counts what the bridges hold of an entity: active, dead, deferred."""

log = logging.getLogger(__name__)


class _Counts(NamedTuple):
    active: int
    dead: int
    deferred: int
    last: int


class Explaining:
    """Finds what is gone of one entity.

    Args:
        held: counts what the bridges hold.

    Attributes:
        hidden: how many messages RabbitMQ has that the journal has no more: no peek shows them.
    """

    def __init__(self, view: BrowseView, connections: ConsumerConnections, held: Held) -> None:
        self._view = view
        self._connections = connections
        self._held = held
        self._looked_s = float("-inf")
        self._difference: int | None = None
        self._task: asyncio.Task[None] | None = None
        self.hidden = 0

    async def look(self) -> None:
        """Compare the counts, unless that was done just now; wait a while for what follows."""
        now_s = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            if now_s - self._looked_s < LOOK_S:
                return
            self._looked_s = now_s
            self._task = asyncio.create_task(self._explain())
        await asyncio.wait((self._task,), timeout=PATIENCE_S)

    async def _explain(self) -> None:
        try:
            await self._compare()
        except (BrokerError, ServiceBusError) as error:
            log.warning("browse.uncounted entity=%s error=%s", self._view.entity.path, error)

    async def _compare(self) -> None:
        view = self._view
        bounds = await view.journal.bounds()
        first, last = (1, 0) if bounds is None else bounds
        counts = await self._count(last)
        self._explain_moved(counts)
        difference = view.active.numbers.unsettled(first, last) - counts.active
        self._note_hidden(-difference if first > 1 else 0)
        if difference <= 0:
            view.active.numbers.floor = 0
            self._difference = difference
            return
        if difference == self._difference:
            return
        margin = await self._margin(counts)
        if margin and self._difference is not None:
            return  # it is known but for what happens just now
        floor = await self._read_back(first, last, counts.active + margin)
        view.active.numbers.floor = 0 if floor is None else floor
        unsettled = view.active.numbers.unsettled(first, last)
        self._difference = unsettled - counts.active if not margin else None

    def _note_hidden(self, count: int) -> None:
        """Say how many messages have left the journal, when that has changed much."""
        before, self.hidden = self.hidden, max(count, 0)
        if self.hidden and not before // 2 < self.hidden <= 2 * before:
            path = self._view.entity.path
            log.warning("browse.beyond_journal entity=%s hidden=%d", path, self.hidden)

    async def _count(self, last: int) -> _Counts:
        entity = self._view.entity
        path = entity.path
        others = names.dead_letter_queue(path), names.deferred_queue(path)
        with contextlib.closing(ReadyCounts(self._connections)) as counts:
            active = sum([await counts.of(queue) for queue in active_queues(entity)])
            ready = [active, *[await counts.of(queue) for queue in others]]
        held = await self._held(path)
        active, dead, deferred = (one + other for one, other in zip(ready, held, strict=True))
        return _Counts(active, dead, deferred, last)

    async def _margin(self, before: _Counts) -> int:
        """Return how many more messages may be there than were counted: none when all is quiet."""
        await asyncio.sleep(QUIET_S)
        await self._view.catch_up()
        bounds = await self._view.journal.bounds()
        after = await self._count(0 if bounds is None else bounds[1])
        if after == before:
            return 0
        return abs(after.active - before.active) + abs(after.last - before.last) + MARGIN

    def _explain_moved(self, counts: _Counts) -> None:
        """Dead letters and deferred messages: the newest are there, as many as were counted."""
        view = self._view
        view.gone_dead = view.gone_deferred = frozenset()
        view.gone_dead = self._oldest(view.dead_letters(), counts.dead)
        aside = view.deferred(Place.DEFERRED) + view.deferred(Place.DEAD_DEFERRED)
        view.gone_deferred = self._oldest(aside, counts.deferred)

    def _oldest(self, numbers: list[int], count: int) -> frozenset[int]:
        """Return those that are gone when so many are left."""
        by_age = sorted(numbers, key=self._view.places.offset)
        return frozenset(by_age[: max(len(by_age) - count, 0)])

    async def _read_back(self, first: int, last: int, count: int) -> int | None:
        """Return the lowest number that may be there; `None`: any may."""
        if not count:
            return last + 1
        view = self._view
        found: set[int] = set()
        high, low = last, max(last - count - count // 8 - MARGIN, first)
        while high >= first:
            found |= await self._candidates(low, high)
            if len(found) > count or low <= first:
                break
            high, low = low - 1, max(low - 2 * (count - len(found)) - MARGIN, first)
        floor = newest(found, count)
        log.info(
            "browse.explained entity=%s count=%d found=%d floor=%s",
            view.entity.path,
            count,
            len(found),
            floor,
        )
        return floor

    async def _candidates(self, low: int, high: int) -> set[int]:
        """Return the numbers in a part of the journal that may be there."""
        view, numbers, now = self._view, self._view.active.numbers, now_ms()
        found: set[int] = set()

        def take(number: int, entry: Entry) -> int:
            if number > high:
                return STOP
            table = entry.properties.headers or {}
            if not is_active_entry(table):
                numbers.active.add(number, number)  # it has never been there
            elif number not in numbers.active:
                until_ms = expires_ms(table, view.reader)
                if until_ms is None or until_ms > now:
                    found.add(number)
            return numbers.active.next_free(number + 1)

        await view.journal.scan(low, take, prefetch=2_000)
        return found
