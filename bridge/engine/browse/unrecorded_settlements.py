"""Settled numbers that no process wrote to a settled stream, found by RabbitMQ's message counts.

The settled stream lacks numbers that were settled before the first peek, by a bridge that was
killed within 50 ms, or by a native consumer. RabbitMQ then counts fewer messages than the view has
unsettled numbers. The oldest of these are taken as gone: the journal is read backwards until as
many messages are found as RabbitMQ counts. The result is never written to a stream: a count may be
wrong for a while (docs/rabbitmq-faults.md: empty-when-dead). It is counted again. Of dead letters
the queue itself is looked through (`dead_letter_looks`).

Deferred messages leave in any order. The first peek, and each one that finds another count than the
view has, asks the owner of their queue which are there, unless there is no such queue.

A count is a sum of answers of different instants. What goes back to its queue between them is in
none, so no single count says that messages are gone. And for some seconds behind a kill of RabbitMQ
a queue may tell counts of before it: the second count waits until they are over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from bridge.background.tasks import Tasks
from bridge.broker.errors import BrokerError
from bridge.broker.ready_counts import ReadyCounts
from bridge.broker.streams.stream_reader import StreamEntry
from bridge.engine.browse.journal_read import STOP
from bridge.engine.browse.view import BrowseView
from bridge.engine.clock import now_ms
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.machine.browse.entity_messages import MovedTo, expires_ms, is_active_entry, newest
from bridge.machine.ranges import ranges_of
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.topology import names
from bridge.topology.shards import active_queues

LOOK_S = 1.0
"""The shortest time between two comparisons of counts; only peeks compare them."""

QUIET_S = 0.1
"""The shortest time between two counts that are taken as exact if they are equal."""

MARGIN = 100
"""The extra messages that may exist beyond a count while messages come and go."""

WAITING_PAGE = 5_000
"""The numbers of scheduled messages that are asked for at a time."""

PATIENCE_S = 10.0
"""The longest wait of a peek for the journal's reading; then it answers by the known numbers."""

Listed = Callable[[model.ReceiveEntity], Awaitable[tuple[Sequence[int], Sequence[int]] | None]]
"""Returns the numbers of an entity's deferred messages, and of its deferred dead letters; `None`:
the owner gives no list."""

Waiting = Callable[[str, int, int], Awaitable[list[int]]]
"""Returns the numbers of an entity's scheduled messages, from a number on, up to a count."""

HeldCount = Callable[[str], Awaitable[list[int]]]
"""Counts an entity's messages that bridges and clients hold: active, dead, deferred."""

log = logging.getLogger(__name__)


class _Counts(NamedTuple):
    active: int
    dead: int
    last: int


class _Counted:
    """The answers to one question about an entity's queues.

    Attributes:
        ready: what RabbitMQ counts.
        held: what bridges and clients hold: active, dead, deferred.
    """

    def __init__(self, entity: model.ReceiveEntity, ready: ReadyCounts) -> None:
        self.ready = ready
        self.held: Sequence[int] = ()
        self._active = active_queues(entity)
        self._dead = names.dead_letter_queue(entity.path)
        self.deferred_queue = names.deferred_queue(entity.path)

    @property
    def queues(self) -> list[str]:
        """The queues of active messages and of dead letters."""
        return [*self._active, self._dead]

    def counts(self, last: int) -> _Counts:
        """Return the counts of active messages and dead letters.

        Raises:
            BrokerSilent: a queue has not answered.
        """
        active, of = sum(map(self.ready.of, self._active)), self.ready.of
        return _Counts(active + self.held[0], of(self._dead) + self.held[1], last)

    def deferred(self) -> int:
        """Return the count of deferred messages; raises likewise."""
        return (self.deferred_ready() or 0) + self.held[2]

    def deferred_ready(self) -> int | None:
        """Return RabbitMQ's count of them, `None`: they have no queue; raises likewise."""
        queue = self.deferred_queue
        return None if queue in self.ready.missing else self.ready.of(queue)


class UnrecordedSettlements:
    """Finds the messages of one entity that are gone, though no process wrote their numbers.

    Args:
        held: counts the messages of an entity that bridges and clients hold unacked.
        held_by_known: does so, without bridges that this one has not heard of yet.
        listed: returns the numbers of an entity's deferred messages.
        waiting: returns the numbers of its scheduled messages.

    Attributes:
        hidden: the count of messages in the queue but no more in the journal: no peek shows them.
    """

    def __init__(
        self,
        view: BrowseView,
        connections: ConsumerConnections,
        *,
        held: HeldCount,
        held_by_known: HeldCount,
        listed: Listed,
        waiting: Waiting,
    ) -> None:
        self._view = view
        self._connections = connections
        self._held = held
        self._held_by_known = held_by_known
        self._listed = listed
        self._waiting = waiting
        self._missing_since: int | None = None
        self._looked_s = float("-inf")
        self._difference: int | None = None
        self._scheduled = 0
        self._tasks = Tasks()
        self._task: asyncio.Task[None] | None = None
        self.hidden = 0

    async def look(self) -> None:
        """Compare the counts, at most once in `LOOK_S`; wait up to `PATIENCE_S` for the result.

        They are compared again at once after the owner's list of deferred messages lacked some.
        """
        now_s = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            if now_s - self._looked_s < LOOK_S and not self._view.set_aside.is_doubtful:
                return
            self._looked_s = now_s
            self._task = self._tasks.start(self._explain(), "browse count")
        await asyncio.wait((self._task,), timeout=PATIENCE_S)

    async def _explain(self) -> None:
        """Compare the counts of each kind; one that RabbitMQ does not tell keeps no other back.

        The journal's end is read before the counts: what comes between is more, not less. The first
        count may lack what a bridge holds that has begun just now: as of any single one, what is
        gone by it is gone only if another count says so, which all running bridges are asked for.
        """
        bounds, known = await self._bounds(), self._view.set_aside
        with self._quiet():
            known.ask()
            counted, must_ask = await self._count(self._held_by_known, with_deferred=True), False
            with self._quiet():
                must_ask = known.counted(counted.deferred_ready(), counted.held[2])
            if must_ask:
                with self._quiet():
                    await self._ask_owner(counted.deferred())
                bounds, counted = await self._bounds(), await self._count(self._held)
            if bounds is not None:
                await self._compare(bounds, counted)

    async def _bounds(self) -> tuple[int, int] | None:
        """Return the first and the last number; `None`: the active messages are not compared."""
        entity = self._view.entity
        if isinstance(entity, model.Queue) and entity.enable_partitioning:
            return None
        with self._quiet():
            return await self._view.journal.bounds() or (1, 0)
        return None

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Log what RabbitMQ or a bridge does not tell."""
        try:
            yield
        except (BrokerError, ServiceBusError) as error:
            log.warning("browse.uncounted entity=%s error=%s", self._view.entity.path, error)

    async def _ask_owner(self, count: int) -> None:
        """Ask the owner of the deferred messages which are there: so many were counted.

        The moved stream may have a message before its queue has it: what one list lacks, a second
        one must lack, too.
        """
        known = self._view.set_aside
        known.ask()
        found = await self._listed(self._view.entity)
        if found is not None and known.lacks(*found):
            await asyncio.sleep(QUIET_S)
            await self._view.catch_up()
            found = await self._listed(self._view.entity)
        if found is None:
            return
        known.told(*found)
        log.info("browse.listed entity=%s deferred=%d", self._view.entity.path, len(known))
        if count > len(known):
            again = await self._count(self._held, with_deferred=True)
            if again.deferred() == count:
                known.excuse(count)

    async def _compare(self, bounds: tuple[int, int], counted: _Counted) -> None:
        view = self._view
        first, last = bounds
        counts = counted.counts(last)
        if not view.active.numbers.given(1, first - 1):
            await self._find_stayed(counted, counts)
        await self._compare_dead(counted)
        difference = view.active.numbers.unsettled(first, last) - counts.active
        if difference > 0 and difference != self._difference:
            await self._leave_out_scheduled(first, last)
            difference = view.active.numbers.unsettled(first, last) - counts.active
        unshown = -difference if first > 1 else 0
        self._note_hidden(max(unshown, 0) + view.hidden_deferred)
        if difference <= 0:
            view.active.numbers.floor = 0
            self._difference = difference
            return
        if difference == self._difference:
            return
        margin = await self._margin(counted, counts)
        if margin and self._difference is not None:
            return  # a result exists, and messages come and go: keep it until all is quiet
        floor = await self._read_back(first, last, counts.active + margin)
        view.active.numbers.floor = 0 if floor is None else floor
        unsettled = view.active.numbers.unsettled(first, last)
        self._difference = unsettled - counts.active if not margin else None

    async def _compare_dead(self, counted: _Counted) -> None:
        """Compare the count of dead letters; what it says is gone, a second one must say, too."""
        view, count = self._view, counted.counts(0).dead
        if view.counted_dead.hides_more(view.named_dead(), count):
            await counted.ready.pause(QUIET_S)
            await view.catch_up()
            count = max(count, (await self._count(self._held)).counts(0).dead)
        view.counted_dead.compare(view.named_dead(), count)

    async def _leave_out_scheduled(self, first: int, last: int) -> None:
        """Take the numbers of scheduled messages for numbers that are not in the queue.

        A scheduled message gets another number when it is due. While nobody tells the numbers, they
        are found in the journal. Numbers that were told are not asked for again: a message that is
        scheduled later has a higher one, or one that was reserved, which is a gap.
        """
        entity, numbers = self._view.entity, self._view.active.numbers
        if not isinstance(entity, model.Queue):
            return
        with suppress(BrokerError, ServiceBusError):
            are_all = False
            while not are_all:
                start = max(first, self._scheduled + 1)
                waiting = await self._waiting(entity.path, start, WAITING_PAGE)
                found = [each for each in waiting if each <= last]
                for low, high in ranges_of(found):
                    numbers.active.add(low, high)
                self._scheduled = max(found, default=self._scheduled)
                are_all = len(found) < WAITING_PAGE
                await asyncio.sleep(0)  # there may be hundreds of thousands, known to this process

    async def _find_stayed(self, counted: _Counted, counts: _Counts) -> None:
        """Find the messages that are where they were, though the moved stream says they have left.

        A next queue refused the move, and the bridge was killed before it had told. RabbitMQ has
        more active messages then than are known; the newest moves that no queue has are those.
        """
        view, numbers = self._view, self._view.active.numbers
        unsettled = numbers.unsettled(1, counts.last) - len(numbers.stayed)
        extra = counts.active - unsettled
        if extra <= 0 and not numbers.stayed:
            return
        dead = list(view.places.numbers(MovedTo.DEAD))
        left = sum(each in view.dead.numbers.active for each in dead)
        found = view.unproven(max(len(dead) - left - counts.dead, 0))[: max(extra, 0)]
        if numbers.stayed != set(found) and not await self._margin(counted, counts):
            log.info("browse.stayed entity=%s count=%d", view.entity.path, len(found))
            numbers.stay(found)

    def _note_hidden(self, count: int) -> None:
        """Note `hidden`; log it when it has more than doubled, or is at most half of before."""
        before, self.hidden = self.hidden, max(count, 0)
        if self.hidden and not before // 2 < self.hidden <= 2 * before:
            path = self._view.entity.path
            log.warning("browse.beyond_journal entity=%s hidden=%d", path, self.hidden)

    async def _count(self, held: HeldCount, *, with_deferred: bool = False) -> _Counted:
        """Ask RabbitMQ, then bridges by `held`.

        Whoever defers a message makes the queue for it and writes to the moved stream. A queue that
        was missing is not asked before that stream says so again: the answer would cost a channel.
        """
        view = self._view
        entity = view.entity
        counted = _Counted(entity, ReadyCounts(self._connections.looking))
        deferrals = view.deferrals
        is_missing = self._missing_since == deferrals
        queues = counted.queues
        if with_deferred and not is_missing:
            queues = [*queues, counted.deferred_queue]
        await counted.ready.ask(queues)
        if is_missing:
            counted.ready.missing.add(counted.deferred_queue)
        elif counted.deferred_queue in counted.ready.missing:
            self._missing_since = deferrals
        counted.held = await held(entity.path)
        return counted

    async def _margin(self, counted: _Counted, before: _Counts) -> int:
        """Return how many more messages than counted may exist; 0 when no count changes.

        Args:
            counted: what `before` was counted by.
        """
        await counted.ready.pause(QUIET_S)
        await self._view.catch_up()
        bounds = await self._view.journal.bounds()
        after = (await self._count(self._held)).counts(0 if bounds is None else bounds[1])
        if after == before:
            return 0
        low, high = sorted((before.last, after.last))
        given = self._view.active.numbers.given(low + 1, high)
        return abs(after.active - before.active) + given + MARGIN

    async def _read_back(self, first: int, last: int, count: int) -> int | None:
        """Return the lowest number that may still be in the queue; `None`: all may be."""
        if not count:
            return last + 1
        view = self._view
        found: set[int] = set()
        back = view.active.numbers.active.back
        high, low = last, max(back(last, count + count // 8 + MARGIN), first)
        while high >= first:
            found |= await self._candidates(low, high)
            if len(found) > count or low <= first:
                break
            wanted = 2 * (count - len(found)) + MARGIN
            high, low = low - 1, max(back(low - 1, wanted), first)
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
        """Return the journal's numbers from `low` to `high` that may still be in the queue."""
        view, numbers, now = self._view, self._view.active.numbers, now_ms()
        found: set[int] = set()

        def take(number: int, entry: StreamEntry) -> int:
            if number > high:
                return STOP
            table = entry.properties.headers or {}
            if not is_active_entry(table):
                numbers.active.add(number, number)  # the message was never in the queue
            elif number not in numbers.active:
                until_ms = expires_ms(table, view.reader)
                if until_ms is None or until_ms > now:
                    found.add(number)
            return numbers.active.next_free(number + 1)

        await view.journal.scan(low, take, prefetch=2_000)
        return found
