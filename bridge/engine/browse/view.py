"""The state of one entity for peeks: moved messages and settled numbers; see `machine.browse`.

A view is kept from one peek to the next. Each peek first reads the new entries of the moved stream
and of the settled streams, so it sees all that RabbitMQ had confirmed before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bridge.broker.streams.stream_reader import StreamEntry
from bridge.engine.browse.journal_scan import JournalScan
from bridge.engine.browse.stream_tail import StreamTail, StreamTails
from bridge.engine.services import Services
from bridge.machine.browse.counted_dead_letters import CountedDeadLetters
from bridge.machine.browse.entity_messages import (
    DEFERRED_PLACES,
    Deferred,
    LeftNumbers,
    MovedTo,
)
from bridge.machine.browse.places import Places
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.topology.shards import count_of
from bridge.wire import headers
from bridge.wire.gaps import OWN, gaps_in
from bridge.wire.settled import PROPERTIES, Settled, entries

WRITE_AGAIN_BYTES = 8 << 20
"""The bytes read of a settled stream after which all its numbers are written again, since RabbitMQ
drops the oldest entries."""

OTHERS_TELL_S = 0.3
"""The wait at an entity's first peek for the settled numbers of other bridges."""

log = logging.getLogger(__name__)


class Copy(NamedTuple):
    """A message's copy in the moved stream.

    Attributes:
        place: where the message is.
    """

    offset: int
    place: MovedTo


class QueueView:
    """One queue of RabbitMQ: the active messages, or the dead letters.

    Args:
        deferred_left: called with a range of numbers of its deferred messages that were settled.

    Attributes:
        queue: its name.
        numbers: the numbers of the messages that have left it.
        read_bytes: the size of the entries since the last time that all numbers were written.
    """

    def __init__(
        self, queue: str, services: Services, deferred_left: Callable[[int, int], None]
    ) -> None:
        self.queue = queue
        self.numbers = LeftNumbers()
        self._sender = services.sender
        self._settlements = services.settlements
        self.read_bytes = 0
        self._deferred_left = deferred_left
        self.tail = StreamTail(services, names.settled(queue), self._take)
        self.is_begun = False

    async def begin(self) -> bool:
        """Make the settled stream if needed; return whether this is the queue's first peek."""
        if self.is_begun:
            return False
        is_new = await self._settlements.begin(self.queue)
        self.is_begun = True
        return is_new

    async def write_again(self) -> None:
        """Write all numbers again."""
        self.read_bytes = 0
        numbers = self.numbers
        for body in entries(numbers.recorded(), list(numbers.deferred), numbers.failed):
            await self._sender.publish("", names.settled(self.queue), PROPERTIES, body)

    def _take(self, entry: StreamEntry) -> None:
        try:
            settled = Settled.decode(entry.body)
            self.numbers.take(settled)
            for first, last in settled.deferred:
                self._deferred_left(first, last)
        except ValueError as error:
            log.warning("settled.unreadable queue=%s error=%s", self.queue, error)
        self.read_bytes += len(entry.body)


class BrowseView:
    """The view of one queue or subscription.

    Attributes:
        entity: its definition.
        active: its active messages.
        dead: its dead letters.
        places: the places of its moved messages.
        journal: reads its journal.
        set_aside: the numbers of its deferred messages.
        deferrals: how many entries of the moved stream have said that a message was deferred.
        counted_dead: which of its dead letters are gone, though nobody has told.
    """

    def __init__(self, entity: model.ReceiveEntity, services: Services) -> None:
        self.entity = entity
        self.reader = reader_of(entity)
        path, front = entity.path, entity.front
        self.active = QueueView(
            names.active_queue(path), services, partial(self._deferred_left, MovedTo.DEFERRED)
        )
        self.dead = QueueView(
            names.dead_letter_queue(path),
            services,
            partial(self._deferred_left, MovedTo.DEAD_DEFERRED),
        )
        self.set_aside = Deferred(
            {
                MovedTo.DEFERRED: self.active.numbers.deferred,
                MovedTo.DEAD_DEFERRED: self.dead.numbers.deferred,
            }
        )
        self.places = Places(path, self.reader, count_of(entity))
        self.journal = JournalScan(
            services.connections.looking,
            names.journal(front),
            self.reader,
            standing=services.connections.standing,
            on_gap=self.active.numbers.pass_over,
        )
        moved = StreamTail(services, names.moved(front), self._take_moved)
        self._tails = StreamTails(services, (self.active.tail, self.dead.tail, moved))
        self._moved_end = -1
        self.deferrals = 0
        self._settlements = services.settlements
        self._is_begun = False
        self._lock = asyncio.Lock()
        self.counted_dead = CountedDeadLetters()

    @property
    def incarnation(self) -> str:
        """The entity's incarnation."""
        return incarnation_of(self.entity)

    async def begin(self, on_first: Callable[[str], None]) -> None:
        """Make the settled streams; at the first peek, wait for other bridges to write theirs."""
        if self._is_begun:
            return
        async with self._lock:
            new = [await side.begin() for side in (self.active, self.dead)]
            if any(new):
                on_first(self.entity.path)
                await asyncio.sleep(OTHERS_TELL_S)
            self._is_begun = True

    async def catch_up(self) -> None:
        """Read the entries of the settled and moved streams that are new since the last peek."""
        async with self._lock:
            await self._settlements.flush(self.active.queue, self.dead.queue)
            await self._tails.catch_up()
            for side in (self.active, self.dead):
                if side.read_bytes > WRITE_AGAIN_BYTES:
                    await side.write_again()

    def put_back(self) -> dict[int, Copy]:
        """Return the messages that were put back with changes and may be in the queue."""
        numbers, copies = self.active.numbers, self.places.copies(MovedTo.ACTIVE)
        if not copies:
            return {}
        there = numbers.active.outside(copies)
        return {each: Copy(copies[each], MovedTo.ACTIVE) for each in there if each >= numbers.floor}

    def dead_letters(self) -> dict[int, Copy]:
        """Return the dead letters that are in the queue."""
        gone = self.counted_dead.gone
        return {
            number: Copy(offset, MovedTo.DEAD)
            for number, offset in self.named_dead().items()
            if number not in gone
        }

    def named_dead(self) -> dict[int, int]:
        """Return the offsets of the dead letters of which nobody has told that they have left."""
        copies, stayed = self.places.copies(MovedTo.DEAD), self.active.numbers.stayed
        if not copies:
            return {}
        there = self.dead.numbers.active.outside(copies)
        return {each: copies[each] for each in there if each not in stayed}

    def all_dead(self) -> list[int]:
        """Return the numbers of all messages that are dead letters, or were when they left."""
        return self.places.numbers(MovedTo.DEAD)

    def unproven(self, dead_beyond: int) -> list[int]:
        """Return the numbers of messages that have left by the moved stream alone; the last first.

        The bridge was killed when a next queue had refused the message, or nobody told when it was
        settled there: no queue has these messages, unless they are where they were.

        Args:
            dead_beyond: how many dead letters there are more than RabbitMQ counts.
        """
        deferred = {*self.set_aside.numbers(MovedTo.DEFERRED)}
        copies = self.places.copies(MovedTo.DEAD)
        dead = sorted(self.dead.numbers.active.outside(copies), key=copies.__getitem__)
        beyond = set(dead[len(dead) - min(dead_beyond, len(dead)) :])
        found = [
            each
            for each in self.active.numbers.only_moved
            if each in beyond
            or (
                self.places.place(each) is MovedTo.DEFERRED
                and each not in deferred
                and each not in self.active.numbers.deferred
            )
        ]
        return sorted(found, key=self.places.offset, reverse=True)

    def deferred(self, place: MovedTo) -> dict[int, Copy]:
        """Return the messages deferred from one place: the queue or dead letters."""
        there = self.set_aside.numbers(place)
        if not there:
            return {}
        copies = self.places.deferred_copies(place)
        return {each: Copy(copies[each], place) for each in there if each in copies}

    @property
    def hidden_deferred(self) -> int:
        """The count of deferred messages that are no more in the moved stream."""
        count = len(self.set_aside)
        return count and count - sum(len(self.deferred(place)) for place in DEFERRED_PLACES)

    def _deferred_left(self, place: MovedTo, first: int, last: int) -> None:
        self.set_aside.left(place, first, last)

    def _take_moved(self, entry: StreamEntry) -> None:
        if entry.offset <= self._moved_end:
            self.places.clear()
            self.counted_dead = CountedDeadLetters()
            self.set_aside.forget()
        self._moved_end = entry.offset
        table = entry.properties.headers or {}
        if headers.ENTRY in table:
            short = OWN if self.reader is None else self.reader.short
            for gap in gaps_in(table, entry.body, short):
                self.active.numbers.pass_over(gap)
            return
        number = self.places.take(entry.offset, table)
        place = None if number is None else self.places.place(number)
        if number is None or place is None:
            return
        self.deferrals += place in DEFERRED_PLACES
        self.set_aside.moved(number, place)
        self.active.numbers.moved(number, place)
