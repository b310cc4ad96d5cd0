"""The bucket queues of one entity: declared, opened in time, and removed.

Each step waits for RabbitMQ by itself: making a bucket holds up neither opening nor removing
another one, and all that were asked for meanwhile are made in the same round trips.

    asked for -> noted as provisional -> declared -> fenced -> noted as safe -> stored into
    over -> empty -> noted as provisional -> deleted -> noted as gone

The journal and the wheel in memory change in the same step, so each snapshot is right.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.handover import HandOver
from bridge.machine.inbox.wheel import Bucket, BucketKey, Wheel
from bridge.sidecar.deletions import Deletions
from bridge.sidecar.leader.awaiting_buckets import AwaitingBuckets
from bridge.sidecar.leader.scheduled_messages import ScheduledMessages
from bridge.topology import names
from bridge.topology.parts import bucket_queue
from bridge.wire.journal import BucketState

if TYPE_CHECKING:
    from bridge.sidecar.leader.leader import Leader

HELD_BYTES_MAX = 64 << 20
"""Bytes of unacked messages of one bucket; with the average size they give the prefetch."""

MESSAGE_OVERHEAD_BYTES = 1_000
"""Memory that Python needs for a held message beside the message's bytes."""

PREFETCH_MAX = 65_535
"""The largest prefetch: basic.qos has 16 bits for it."""

MOVE_PREFETCH = 500

RETRY_S = 1.0
IDLE_S = 60.0


class Buckets:
    """The buckets of an entity during one term of its sequencer.

    Attributes:
        messages: the messages that came out of buckets, or wait for a bucket.
    """

    def __init__(
        self, leader: Leader, connection: ConnectionLease, clock: Callable[[], int]
    ) -> None:
        self._leader = leader
        self._connection = connection
        self._clock = clock
        self._awaiting = AwaitingBuckets(leader.name, leader.waits, self._want)
        self.messages = ScheduledMessages(leader, self._awaiting, clock, self._count_out)
        self._channel: Channel | None = None
        self._outstanding: Counter[BucketKey] = Counter()
        self._tags: dict[BucketKey, str] = {}
        self._places: dict[str, BucketKey] = {}
        self._opening = asyncio.Lock()
        self._is_wanted = asyncio.Event()
        self._is_made = asyncio.Event()
        self._is_opened = asyncio.Event()
        self._deletions = Deletions(connection, leader.start)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def _wheel(self) -> Wheel:
        return self._leader.sequencer.memory.wheel

    async def declare(self) -> None:
        """Declare the buckets that the journal calls safe; this writes no entry of the journal.

        The publications of an earlier term may go into them.
        """
        for bucket in self._wheel.buckets.values():
            bucket.is_open, bucket.count = False, 0
        await self._declare([each for each in self._wheel.buckets.values() if each.is_usable])

    def begin(self) -> None:
        """Begin to open, make and remove buckets.

        The publications of an earlier term must be confirmed before: some go into a bucket whose
        time is over, some are activations of messages that a bucket still holds, and some are notes
        about buckets.
        """
        for bucket in list(self._wheel.buckets.values()):
            if not bucket.is_provisional:
                bucket.is_usable = True
        self._remove_provisional()
        works = (self._open_due, self._make_wanted, self._remove_over)
        self._tasks = [self._leader.start(each()) for each in works]

    async def close(self) -> None:
        """End all work and close the channel; held messages go back to their buckets."""
        self.messages.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._deletions.close()
        if self._channel is not None:
            self._channel.on_closed = None
            await self._channel.close()

    async def await_come(self, since_ms: int) -> None:
        """Wait until all messages have come that were in the buckets begun at a time.

        A message whose activation an earlier term did not see confirmed is in one of them.
        """
        begun = [each for each in self._wheel.buckets.values() if each.place.start_ms <= since_ms]
        for bucket in begun:
            # RabbitMQ may have counted a message out, and not yet written it.
            empty = 0
            while empty < 2 and self._wheel.buckets.get(bucket.place) is bucket:
                empty = empty + 1 if bucket.is_open and await self._is_empty(bucket) else 0
                if not empty:
                    await asyncio.sleep(RETRY_S)

    def _want(self) -> None:
        self._is_wanted.set()

    def _remove_provisional(self) -> None:
        """Delete the buckets that an earlier term was making or removing: they hold no message.

        RabbitMQ may have failed since. Then such a queue may refuse messages, or take and never
        confirm them.
        """
        for bucket in list(self._wheel.buckets.values()):
            if bucket.is_provisional:
                self._delete(bucket.place)

    async def _make_wanted(self) -> None:
        """Make the buckets that work waits for, all that are wanted at a time together."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            while wanted := [each for each in self._awaiting.wanted if self._may_make(each)]:
                await self._make(wanted)
                for each in wanted:
                    self._awaiting.made(each)
                self._is_made.set()
                self._leader.go_on()

    def _may_make(self, where: BucketKey) -> bool:
        """Whether a bucket can be made now: no queue of its name is being deleted."""
        return self._queue(where) not in self._deletions

    async def _make(self, places: Sequence[BucketKey]) -> None:
        missing = [each for each in places if not self._wheel.is_usable(each)]
        if not missing:
            return
        buckets = [self._wheel.add(each, is_provisional=True) for each in missing]
        await self._note(missing, BucketState.PROVISIONAL)
        await self._declare(buckets)
        await self._deletions.fence(await self._opened_channel())
        for bucket in buckets:
            bucket.is_provisional = False
        await self._note(missing, BucketState.SAFE)
        for bucket in buckets:
            bucket.is_usable = True

    async def _note(self, places: Sequence[BucketKey], state: BucketState) -> None:
        """Write the state of buckets into the journal; what is in memory says the same already."""
        journal = self._leader.sequencer.journal
        await self._leader.write(*[journal.note_bucket(each, state) for each in places])

    async def _opened_channel(self) -> Channel:
        async with self._opening:
            if self._channel is None:
                channel = await self._connection.channel()
                channel.on_closed = self._leader.fail
                await channel.publisher.confirm_select()
                self.messages.handover = HandOver(channel)
                self._channel = channel
        return self._channel

    async def _declare(self, buckets: Sequence[Bucket]) -> None:
        if not buckets:
            return
        channel = await self._opened_channel()
        asked = []
        for bucket in buckets:
            queue = bucket_queue(self._leader.name, bucket.place.level, bucket.place.slot)
            asked.append(channel.declarations.declare_queue(queue))
        for bucket, state in zip(buckets, await asyncio.gather(*asked), strict=True):
            bucket.count = max(bucket.count, state.messages)

    def _queue(self, where: BucketKey) -> str:
        return names.bucket(self._leader.name, where.level, where.slot)

    async def _open_due(self) -> None:
        """Consume each bucket when its time comes."""
        while True:
            self._is_made.clear()
            for bucket in self._wheel.to_open(self._clock()):
                await self._open(bucket)
            await self._until(self._wheel.next_opens_ms(), self._is_made)

    async def _open(self, bucket: Bucket) -> None:
        """Begin to consume a bucket; its messages come when RabbitMQ has answered."""
        channel = await self._opened_channel()
        average = self._leader.sequencer.memory.average_bytes + MESSAGE_OVERHEAD_BYTES
        prefetch = MOVE_PREFETCH if bucket.place.level else HELD_BYTES_MAX // average
        tag = f"{bucket.place.level}-{bucket.place.slot}"
        queue = self._queue(bucket.place)
        self._places[tag] = bucket.place
        self._tags[bucket.place] = tag
        bucket.is_open = True
        self._is_opened.set()
        wait = self._leader.waits.begin(self._leader.name, f"the queue {queue!r} is being opened")
        channel.consumers.consume_soon(
            queue, self._on_delivery, tag=tag, prefetch=min(max(prefetch, 16), PREFETCH_MAX)
        ).add_done_callback(lambda _: wait.end())

    async def _remove_over(self) -> None:
        """Remove each bucket when its time is over."""
        while True:
            self._is_opened.clear()
            for bucket in self._wheel.to_end(self._clock()):
                await self._remove(bucket)
            has_rest = bool(self._wheel.to_end(self._clock()))
            await self._until(self._wheel.next_ends_ms(), self._is_opened, RETRY_S * has_rest)

    async def _until(self, time_ms: int | None, event: asyncio.Event, least_s: float = 0.0) -> None:
        """Wait until a time, or an event; for `IDLE_S` at most."""
        wait_s = IDLE_S if time_ms is None else (time_ms - self._clock()) / 1000
        await asyncio.sleep(least_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(wait_s - least_s, 0.0), IDLE_S)):
                await event.wait()

    def _is_shared(self, where: BucketKey) -> bool:
        """Whether another bucket has the same queue, which can happen after a long stop."""
        queue = self._queue(where)
        return any(each != where and self._queue(each) == queue for each in self._wheel.buckets)

    async def _remove(self, bucket: Bucket) -> None:
        """Begin to remove a bucket whose time is over, unless a message may be left in it."""
        channel = await self._opened_channel()
        where, queue = bucket.place, self._queue(bucket.place)
        # A deletion drops the queue's messages, and RabbitMQ confirms later publishes all the same.
        is_led_to = self._leader.in_flight.lead_to(queue) or self.messages.handover.leads_to(queue)
        if queue in self._deletions or self._outstanding[where] or is_led_to:
            return
        if not await self._is_empty(bucket) or self._outstanding[where]:
            return
        await channel.consumers.cancel(self._tags.pop(where))
        if self._outstanding[where]:
            bucket.is_open = False
            self._is_made.set()
            return
        bucket.is_provisional, bucket.is_usable = True, False
        if not self._is_shared(where):
            # A kill of RabbitMQ may bring the queue back as one that refuses all messages. Until
            # the deletion is safe, the journal has the bucket as provisional.
            await self._note([where], BucketState.PROVISIONAL)
        self._delete(where)

    async def _is_empty(self, bucket: Bucket) -> bool:
        """Whether RabbitMQ has no message of a bucket but those that were delivered to this term.

        The count omits messages that another consumer holds: RabbitMQ may notice its end late. And
        RabbitMQ reports "no messages, no consumers" when a queue does not answer in 0.25 s.
        """
        channel, queue = await self._opened_channel(), self._queue(bucket.place)
        state = await channel.declarations.declare_queue(queue, passive=True)
        ours = sum(self._queue(each) == queue for each in self._tags)
        return not state.messages and state.consumers == ours

    def _delete(self, where: BucketKey) -> None:
        """Delete the queue of a bucket that the journal calls provisional, and forget the bucket.

        If another bucket has the same queue, the queue is kept.
        """
        if self._is_shared(where):
            self._leader.start(self._forget(where))
        else:
            self._deletions.begin(self._queue(where), partial(self._forget, where))

    async def _forget(self, where: BucketKey) -> None:
        self._wheel.remove(where)
        del self._outstanding[where]
        await self._note([where], BucketState.GONE)
        self._is_wanted.set()

    def _on_delivery(self, delivery: Delivery) -> None:
        where = self._places[delivery.consumer_tag]
        self._outstanding[where] += 1
        self.messages.take(delivery, where)

    def _count_out(self, where: BucketKey) -> None:
        self._outstanding[where] -= 1
        self._wheel.left(where)
