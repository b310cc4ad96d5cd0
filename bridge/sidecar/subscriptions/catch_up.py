"""Catching up a left-out subscription: its missed messages, from the topic's journal, in order.

The missed messages are published to the subscription's queue alone, a batch at a time, each batch
confirmed before the next. Near the journal's end the leader publishes nothing for a moment. The
messages of the meantime follow, and from then on the topic's publishes include the subscription
again. The catch-up writes an entry of its own to find the journal's end: the journal may get no
other entry, or the node that reads it may be behind the others. The first batch is one message: an
attempt on a queue that takes nothing costs no more.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.errors import BrokerSilent
from bridge.broker.streams.stream_reader import OFFSET, StreamEntry, find_own
from bridge.engine.browse.journal_read import STOP
from bridge.engine.browse.journal_scan import JournalScan
from bridge.machine.browse.entity_messages import expires_ms, is_active_entry
from bridge.machine.inbox.left_out import Missed, as_missed
from bridge.machine.ranges import Ranges
from bridge.model.entity import Subscription
from bridge.model.name import short_id
from bridge.sidecar.leader.leader import Leader
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.topology.shards import shard_of
from bridge.wire import headers
from bridge.wire.copies import Reader
from bridge.wire.gaps import Gap
from bridge.wire.sessions import session_id_in

BATCH = 200
BATCH_BYTES = 4 << 20
"""A batch ends after `BATCH` messages, or with the message that reaches this many bytes."""

PREFETCH = 100

CONFIRM_S = 3.0
"""How long a subscription's queue may take to confirm the first message before the attempt fails.
No later batch is cut off by a clock, for it would be published again.
"""

HOLD_S = 5.0
"""How long the leader may publish nothing while the last missed messages are published."""

NOTE_EVERY = 1_000
"""Number of messages after which the subscription's progress is written to the journal."""

MARK_BYTES = 16

log = logging.getLogger(__name__)


class CatchUp:
    """One attempt to catch up a subscription.

    Args:
        leader: the topic's leader; it is ready.
        missed: the leader's record of the missed messages; updated here.
        lease: a separate connection, lest the queue hold up other queues.
        clock: the time (UTC ms).
    """

    def __init__(
        self,
        leader: Leader,
        subscription: Subscription,
        missed: Missed,
        lease: ConnectionLease,
        clock: Callable[[], int],
    ) -> None:
        self._leader = leader
        self._missed = missed
        self._clock = clock
        self._short = short_id(incarnation_of(subscription))
        self._reader = Reader(self._short, subscription.default_message_time_to_live_ms)
        self._subscription, self._name = subscription, subscription.path
        self._lease = lease
        stream = names.journal(leader.name)
        self._gaps = Ranges()
        self._journal = JournalScan(
            lease, stream, self._reader, has_entries=True, on_gap=self._pass_over
        )
        self._exchange = names.active_exchange(leader.name)
        self._noted = missed.number
        self._has_begun = False

    async def run(self) -> None:
        """Publish the missed messages; then the subscription is left out no more.

        Raises:
            BrokerError, TimeoutError: the queue does not take all messages, or the journal cannot
                be read to its end.
        """
        channel = await self._lease.channel()
        await channel.publisher.confirm_select()
        beside = self._leader.orderly_end.beside
        has_more = True
        while has_more:
            async with beside():
                has_more = await self._publish_batch(channel, BATCH if self._has_begun else 1)
                self._note_progress()
        async with beside():
            await self._publish_last(channel)

    async def _publish_last(self, channel: Channel) -> None:
        """Publish what is left, while the leader publishes nothing, for `HOLD_S` at most.

        After that time the leader goes on, and this fails. The batch that is under way then is the
        last one, and not cut off: it would be published again.
        """
        loop = asyncio.get_running_loop()
        in_flight = self._leader.in_flight
        in_flight.holds += 1
        is_held = True

        def go_on() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                in_flight.holds -= 1
                self._leader.go_on()

        until_s = loop.time() + HOLD_S
        timer = loop.call_at(until_s, go_on)
        try:
            async with asyncio.timeout_at(until_s):
                await in_flight.wait_confirmed()
                end = await self._mark_end()
            while is_held and await self._publish_batch(channel, BATCH, until_s):
                pass
            if not is_held:
                raise BrokerSilent(text=f"{self._name!r} took longer than {HOLD_S:g} s")
            if self._journal.end < end:
                raise BrokerSilent(text=f"the journal of {self._name!r} is not read to its end")
            self._end()
        finally:
            timer.cancel()
            go_on()

    async def _mark_end(self) -> int:
        """Write an entry after all missed messages; return its offset when it can be read."""
        sequencer, mark = self._leader.sequencer, os.urandom(MARK_BYTES)

        async def write() -> None:
            await self._leader.write(sequencer.journal.note_left_out(sequencer.memory, mark))

        def is_own(entry: StreamEntry) -> bool:
            return (entry.properties.headers or {}).get(headers.IDENTITY, ("V", None))[1] == mark

        return await find_own(self._lease, names.journal(self._leader.name), write, is_own)

    def _end(self) -> None:
        sequencer = self._leader.sequencer
        del sequencer.memory.left_out[self._short]
        self._leader.submit(
            (sequencer.journal.note_left_out(sequencer.memory),), site="sequencer.journal"
        )
        since_s = (self._clock() - self._missed.since_ms) / 1000
        log.info("subscription.whole name=%s left_out_s=%.1f", self._name, since_s)

    def _note_progress(self) -> None:
        if self._missed.number - self._noted >= NOTE_EVERY:
            self._noted = self._missed.number
            note = self._leader.sequencer.journal.note_left_out(self._leader.sequencer.memory)
            self._leader.submit((note,), site="sequencer.journal")

    async def _publish_batch(
        self, channel: Channel, count: int, until_s: float | None = None
    ) -> bool:
        """Publish up to `count` missed messages; return whether there may be more.

        Args:
            until_s: until when they may be read (the loop's clock).
        """
        found: list[StreamEntry] = []
        size = 0
        last = self._missed.number - 1

        def take(number: int, entry: StreamEntry) -> int:
            nonlocal size, last
            self._count_lost(last + 1, number)
            self._has_begun, last = True, number
            if is_active_entry(entry.properties.headers or {}):
                found.append(entry)
                size += len(entry.body)
            return STOP if len(found) >= count or size >= BATCH_BYTES else number + 1

        async with asyncio.timeout_at(until_s):
            await self._journal.scan(last + 1, take, prefetch=PREFETCH)
        is_full = len(found) >= count or size >= BATCH_BYTES
        async with asyncio.timeout(CONFIRM_S if count == 1 else None):
            await asyncio.gather(*[self._publish(channel, entry) for entry in found])
        self._missed.number = last + 1
        return is_full

    def _publish(self, channel: Channel, entry: StreamEntry) -> Awaitable[None]:
        properties = entry.properties
        table = properties.headers or {}
        table.pop(OFFSET, None)
        until_ms = expires_ms(table, self._reader)
        left_ms = None if until_ms is None else max(until_ms - self._clock(), 0)
        key = names.copy_key(self._short, shard_of(self._subscription, session_id_in(table)))
        raw = as_missed(properties, left_ms)
        return channel.publisher.publish_confirmed(self._exchange, key, raw, entry.body)

    def _pass_over(self, gap: Gap) -> None:
        """Note numbers that no message ever had: none of them is lost."""
        self._gaps.add(gap.first, gap.last)

    def _count_lost(self, wanted: int, number: int) -> None:
        """Count and log the missed messages that have left the journal, before the first batch."""
        if self._has_begun or number <= wanted:
            return
        lost = number - wanted - self._gaps.count(wanted, number - 1)
        if not lost:
            return
        self._leader.meters.lost += lost
        log.error(
            "subscription.lost name=%s first=%d last=%d messages=%d text=%s",
            self._name,
            wanted,
            number - 1,
            lost,
            "these messages had left the journal before the subscription's queue was back",
        )
