"""Browse: peek an entity's messages from a sequence number on; no message leaves a queue.

A page merges three sources by sequence number:

    active      the journal, without the messages that have left the queue
    moved       dead letters, deferred messages, and messages put back with changes, as they are now
    scheduled   the numbers come from the sequencer's index, the messages from the journal
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bridge.broker.errors import BrokerError, NotFound, Unroutable
from bridge.broker.streams.stream_reader import FIRST, OFFSET, StreamEntry, at, read_stream
from bridge.engine import texts
from bridge.engine.api import Received
from bridge.engine.browse.dead_letter_looks import DeadHeld, DeadLetterLooks, LookThrough
from bridge.engine.browse.journal_read import STOP
from bridge.engine.browse.journal_scan import JournalScan, reserved_number
from bridge.engine.browse.page import COUNT_MAX, SESSION_READ_MAX, Page
from bridge.engine.browse.unrecorded_settlements import (
    HeldCount,
    Listed,
    UnrecordedSettlements,
    Waiting,
)
from bridge.engine.browse.view import BrowseView, Copy
from bridge.engine.clock import now_ms
from bridge.engine.services import Services
from bridge.engine.sessions.membership import members_of
from bridge.machine.browse.entity_messages import (
    DEFERRED_PLACES,
    MovedTo,
    expires_ms,
    is_active_entry,
)
from bridge.message.message import death_of, died_after
from bridge.model import entity as model
from bridge.model.errors import ServerBusy
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.topology.entity_table import Changes
from bridge.wire import headers
from bridge.wire.basic import integer_in
from bridge.wire.copies import Reader
from bridge.wire.record import Record
from bridge.wire.stamp import read_waiting

NEAR = 64
"""The largest distance in offsets of moved messages that one read covers."""


class _Known(NamedTuple):
    """What is known of one entity."""

    view: BrowseView
    explaining: UnrecordedSettlements
    looks: DeadLetterLooks


class Browsing:
    """Answers peeks.

    Args:
        waiting: returns the numbers of an entity's scheduled messages.
        waiting_now: does so, and raises ServerBusy while nobody knows them.
        held: counts the messages of an entity that bridges and clients hold unacked.
        held_by_known: does so, without bridges that this one has not heard of yet.
        listed: returns the numbers of an entity's deferred messages.
        dead_held: counts the dead letters of an entity that are held.
        look_through: looks which dead letters an entity's queue has.
        on_first: called with the path of an entity at its first peek.
    """

    def __init__(
        self,
        services: Services,
        *,
        waiting: Waiting,
        waiting_now: Waiting,
        held: HeldCount,
        held_by_known: HeldCount,
        listed: Listed,
        dead_held: DeadHeld,
        look_through: LookThrough,
        on_first: Callable[[str], None],
    ) -> None:
        self._services = services
        self._connections = services.connections
        self._waiting = waiting
        self._waiting_now = waiting_now
        self._held = held
        self._held_by_known = held_by_known
        self._listed = listed
        self._dead_held = dead_held
        self._look_through = look_through
        self._on_first = on_first
        self._views: dict[str, _Known] = {}
        self._topics: dict[str, JournalScan] = {}

    @property
    def hidden(self) -> dict[str, int]:
        """By entity: messages in its queue but no more in its journal. Peeked entities only."""
        found = {each.view.entity.path: each.explaining.hidden for each in self._views.values()}
        return {path: count for path, count in found.items() if count}

    def follow(self, changes: Changes) -> None:
        """Forget the views of entities that are no more."""
        for path in changes.gone:
            self._views.pop(path, None)
            self._topics.pop(path, None)

    async def peek(
        self,
        path: EntityPath,
        entity: model.Entity,
        start: int,
        count: int,
        session_id: str | None = None,
    ) -> list[Received]:
        """Return messages from a sequence number on, in the order of their numbers.

        A peek with a count of 0 only makes the settled streams: bridges write to them from now on.

        Raises:
            ServerBusy: RabbitMQ does not answer now.
        """
        takes = None if session_id is None else members_of(entity, session_id)
        page = Page(min(count, COUNT_MAX), takes)
        try:
            if isinstance(entity, model.Topic):
                await self._scheduled(page, entity.path, self._topic(entity), start)
            else:
                await self._peek(page, path, entity, start)
        except (NotFound, Unroutable) as error:
            self._views.pop(entity.path.lower(), None)
            raise ServerBusy(texts.busy(error)) from error
        except BrokerError as error:
            raise ServerBusy(texts.busy(error)) from error
        return page.result()

    async def _peek(
        self, page: Page, path: EntityPath, entity: model.ReceiveEntity, start: int
    ) -> None:
        view, explaining, looks = await self._view(entity)
        if not page.count:
            return
        is_partitioned = isinstance(entity, model.Queue) and entity.enable_partitioning
        await view.catch_up()
        await explaining.look()
        if path.sub_queue is SubQueue.DEAD_LETTER:
            await looks.look()
            await self._moved(
                page, view, view.dead_letters() | view.deferred(MovedTo.DEAD_DEFERRED), start
            )
            return
        if is_partitioned:
            await self._whole(page, view, start)
        else:
            await self._active(page, view, start)
        await self._moved(page, view, view.put_back() | view.deferred(MovedTo.DEFERRED), start)
        if isinstance(entity, model.Queue) and not is_partitioned:
            await self._scheduled(page, entity.path, view.journal, start)

    async def _view(self, entity: model.ReceiveEntity) -> _Known:
        key = entity.path.lower()
        found = self._views.get(key)
        if found is None or found.view.incarnation != incarnation_of(entity):
            view = BrowseView(entity, self._services)
            found = self._views[key] = _Known(
                view,
                UnrecordedSettlements(
                    view,
                    self._connections,
                    held=self._held,
                    held_by_known=self._held_by_known,
                    listed=self._listed,
                    waiting=self._waiting_now,
                ),
                DeadLetterLooks(view, self._connections, self._look_through, self._dead_held),
            )
        found.view.entity = entity
        await found.view.begin(self._on_first)
        return found

    def may_have(self, path: EntityPath, number: int) -> bool:
        """Whether a dead letter may be there though a peek has just not shown it."""
        found = self._views.get(path.key)
        is_dead = path.sub_queue is SubQueue.DEAD_LETTER
        return is_dead and found is not None and number in found.view.counted_dead.unsure

    def _topic(self, topic: model.Topic) -> JournalScan:
        key = topic.path.lower()
        if key not in self._topics:
            self._topics[key] = JournalScan(
                self._connections.looking, names.journal(topic.path), None
            )
        return self._topics[key]

    async def _active(self, page: Page, view: BrowseView, start: int) -> None:
        numbers, now, places = view.active.numbers, now_ms(), view.places.found
        reader, wanted = view.reader, numbers.next_active(start)

        def take(number: int, entry: StreamEntry) -> int:
            nonlocal wanted
            is_gone = number != wanted and numbers.is_gone(number)
            wanted = numbers.next_active(number + 1)
            table = entry.properties.headers or {}
            is_moved = number in places and number not in numbers.stayed
            if is_moved or is_gone or not is_active_entry(table):
                return wanted
            until_ms = expires_ms(table, reader)
            has_expired = until_ms is not None and until_ms <= now
            failures = numbers.failed.get(number, 0)
            if not has_expired and page.add(_received(entry, reader, number, failures)):
                page.end_at(number)
                return STOP
            return wanted

        await view.journal.scan_page(wanted, take, prefetch=page.prefetch)

    async def _whole(self, page: Page, view: BrowseView, start: int) -> None:
        """Read the whole journal of a partitioned queue: it is not in the order of its numbers."""
        waiting = set(await self._waiting(view.entity.path, start, SESSION_READ_MAX))
        numbers, now = view.active.numbers, now_ms()

        def take(entry: StreamEntry) -> bool:
            table = entry.properties.headers or {}
            number = max(view.journal.see(entry), reserved_number(entry))
            if number in waiting and headers.WAITING in table:
                page.add(_scheduled(entry, number))
            elif number >= start and is_active_entry(table) and number not in view.places:
                until_ms = expires_ms(table, None)
                if not numbers.is_gone(number) and (until_ms is None or until_ms > now):
                    page.add(_received(entry, None, number, numbers.failed.get(number, 0)))
            return False

        stream = names.journal(view.entity.front)
        is_known = view.journal.has_entries
        await read_stream(
            self._connections.looking,
            stream,
            FIRST,
            take,
            prefetch=2_000,
            may_be_empty=not is_known,
        )

    async def _moved(
        self, page: Page, view: BrowseView, copies: dict[int, Copy], start: int
    ) -> None:
        """Add messages of the moved stream, lowest numbers first."""
        if not copies:
            return
        there = sorted(copies)

        async def named(start: int, limit: int) -> list[int]:
            first = bisect_left(there, start)
            return there[first : first + limit]

        await page.read_on(start, named, partial(self._moved_of, page, view, copies))

    async def _moved_of(
        self, page: Page, view: BrowseView, copies: dict[int, Copy], numbers: list[int]
    ) -> None:
        offsets = {copies[number].offset: number for number in numbers}
        now, last = now_ms(), 0
        failed, deliveries_max = view.active.numbers.failed, view.entity.max_delivery_count

        def take(entry: StreamEntry) -> bool:
            nonlocal last
            last = max(last, entry.offset)
            number = offsets.pop(entry.offset, None)
            if number is not None:
                place, table = copies[number].place, entry.properties.headers or {}
                until_ms = expires_ms(table, view.reader)
                if place is not MovedTo.ACTIVE or until_ms is None or until_ms > now:
                    if place is MovedTo.DEAD:
                        failures = died_after(table, deliveries_max)
                    else:
                        failures = failed.get(number, 0)
                    page.add(_received(entry, view.reader, number, failures, place))
            return not any(last < each <= last + NEAR for each in offsets)

        stream = names.moved(view.entity.front)
        while offsets:
            last = min(offsets)
            prefetch = min(len(offsets) + 1, NEAR)
            count = await read_stream(
                self._connections.looking,
                stream,
                at(last),
                take,
                prefetch=prefetch,
                may_be_empty=True,
            )
            if not count:
                return  # the stream has no entry at this offset or behind it
            # Messages at offsets that were passed are no more in the stream: they are not shown.
            offsets = {each: number for each, number in offsets.items() if each > last}

    async def _scheduled(self, page: Page, path: str, scan: JournalScan, start: int) -> None:
        named = partial(self._waiting, path)
        await page.read_on(start, named, partial(self._scheduled_of, page, scan))

    @staticmethod
    async def _scheduled_of(page: Page, scan: JournalScan, numbers: list[int]) -> None:
        left, missing = deque(numbers), set(numbers)

        def take(number: int, entry: StreamEntry) -> int:
            if left[0] == number and headers.WAITING in (entry.properties.headers or {}):
                missing.discard(number)
                page.add(_scheduled(entry, number))
            while left and left[0] <= number:
                left.popleft()
            return left[0] if left else STOP

        def take_reserved(number: int, entry: StreamEntry) -> None:
            page.add(_scheduled(entry, number))

        await scan.scan(numbers[0], take, prefetch=page.prefetch)
        if missing:
            await scan.scan_reserved(missing, take_reserved)


def _received(
    entry: StreamEntry,
    reader: Reader | None,
    number: int,
    failures: int,
    place: MovedTo = MovedTo.ACTIVE,
) -> Received:
    """Return a message for a gateway; `time_to_live_ms` is only the message's own TTL.

    Args:
        failures: how often it has failed, as far as anybody has written it; of a dead letter,
            before it was one.
    """
    properties = entry.properties
    table = properties.headers or {}
    table.pop(OFFSET, None)
    if reader is not None:
        table = properties.headers = reader.own(table)
    if place is not MovedTo.DEAD and headers.DELIVERED in table:
        failures = max(failures, integer_in(table, headers.DELIVERED) or 0)
    has_own_ttl = headers.OWN_TIME_TO_LIVE in table
    return Received(
        record=Record(properties, entry.body),
        sequence_number=number,
        enqueued_ms=integer_in(table, headers.ENQUEUED_TIME) or 0,
        delivery_count=failures,
        time_to_live_ms=integer_in(table, headers.TIME_TO_LIVE) if has_own_ttl else None,
        dead_letter=death_of(table) if place in (MovedTo.DEAD, MovedTo.DEAD_DEFERRED) else None,
        is_deferred=place in DEFERRED_PLACES,
    )


def _scheduled(entry: StreamEntry, number: int) -> Received:
    _, due_ms, ttl_ms, _ = read_waiting(entry.properties)
    (entry.properties.headers or {}).pop(OFFSET, None)
    return Received(
        record=Record(entry.properties, entry.body),
        sequence_number=number,
        enqueued_ms=due_ms,
        delivery_count=0,
        time_to_live_ms=ttl_ms,
        is_scheduled=True,
    )
