"""Looks through an entity's dead-letter queue, when its count leaves open which ones are there.

A look takes each message out of the queue and gives it back, in order; no delivery of a dead letter
is counted (`engine.receiving.numbered_locking`). So it is made only for who peeks dead letters, and
seldom while it says nothing new.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from bridge.background.tasks import Tasks
from bridge.broker.errors import BrokerError
from bridge.broker.ready_counts import ReadyCounts
from bridge.engine.browse.view import BrowseView
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.machine.browse.counted_dead_letters import LookedThrough
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.topology import names

AGAIN_S = 5.0
"""The shortest time between two looks; twice as long after each that has left the count open."""

AGAIN_MAX_S = 300.0
"""The longest time between two looks."""

SHARE = 20
"""A look comes after this many times the time that the last one took."""

PATIENCE_S = 25.0
"""The longest wait of a peek for a look; then it answers by the count alone."""

QUIET_S = 0.2
"""The shortest time between two equal counts before a look; bridges tell within 50 ms what has
left."""

COUNTS = 5
"""Counts before a look is put off, because no two of them are equal."""

BACK_S = 3.0
"""The longest wait until RabbitMQ counts what has gone back."""

COUNTED_S = 0.1
"""The time between two counts of what has gone back."""

LookThrough = Callable[[model.ReceiveEntity], Awaitable[LookedThrough | None]]
"""Looks through an entity's dead letters; `None`: not here, or not now."""

DeadHeld = Callable[[str], Awaitable[tuple[int, int]]]
"""Counts an entity's dead letters that are held: by all processes, and by others than this one."""

log = logging.getLogger(__name__)


class DeadLetterLooks:
    """The looks through the dead letters of one entity.

    Args:
        look: looks through them.
        held: counts those that are held.
        now_s: a clock that only goes forward.
    """

    def __init__(
        self,
        view: BrowseView,
        connections: ConsumerConnections,
        look: LookThrough,
        held: DeadHeld,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = view
        self._connections = connections
        self._look_through = look
        self._held = held
        self._now_s = now_s
        self._next_s = float("-inf")
        self._wait_s = AGAIN_S
        self._tasks = Tasks()
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Look through the queue, if that says more than its count; wait for `PATIENCE_S`."""
        if self._task is None or self._task.done():
            if not self._view.counted_dead.is_open or self._now_s() < self._next_s:
                return
            self._task = self._tasks.start(self._look(), "look through dead letters")
        await asyncio.wait((self._task,), timeout=PATIENCE_S)

    async def _look(self) -> None:
        began_s = self._now_s()
        self._next_s = began_s + AGAIN_S
        path = self._view.entity.path
        try:
            is_made = await self._explain()
        except (BrokerError, ServiceBusError) as error:
            log.warning("browse.unlooked entity=%s error=%s", path, error)
            return
        if not is_made:
            return
        counted = self._view.counted_dead
        took_s = self._now_s() - began_s
        self._wait_s = min(2 * self._wait_s, AGAIN_MAX_S) if counted.is_open else AGAIN_S
        self._next_s = self._now_s() + max(self._wait_s, SHARE * took_s)
        log.info(
            "browse.looked entity=%s gone=%d open=%s ms=%d",
            *(path, len(counted.gone), counted.is_open, int(1000 * took_s)),
        )

    async def _explain(self) -> bool:
        """Look through the queue; return whether that was done."""
        view = self._view
        counted = view.counted_dead
        before = -1
        for _ in range(COUNTS):  # what has left or died just now is counted, and told a bit later
            await view.catch_up()
            there = view.named_dead()
            ready, count, others = await self._count()
            if count == before:
                break
            before = count
            await ready.pause(QUIET_S)
        else:
            return False
        counted.compare(there, count)
        if not counted.is_open:
            return False
        found = await self._look_through(view.entity)
        if found is None:
            return False
        await view.catch_up()
        if view.counted_dead is not counted:
            return False  # the entity's streams were made anew
        counted.looked(there, count, others, found, view.all_dead())
        end_s = self._now_s() + BACK_S
        while True:
            before, (_, count, _) = count, await self._count()
            counted.compare(view.named_dead(), max(before, count))
            if not counted.is_open or self._now_s() >= end_s:
                return True
            await asyncio.sleep(COUNTED_S)
            await view.catch_up()

    async def _count(self) -> tuple[ReadyCounts, int, int]:
        """Return what RabbitMQ was asked by, how many dead letters there are, and how many of them
        others hold.
        """
        path = self._view.entity.path
        queue = names.dead_letter_queue(path)
        counts = ReadyCounts(self._connections.looking)
        await counts.ask([queue])
        held, others = await self._held(path)
        return counts, counts.of(queue) + held, others
