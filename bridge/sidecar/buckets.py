"""The buckets of one entity: declare, consume, empty in time, and delete them.

A message of a bucket stays unacked until it is active, or in a finer bucket. Messages that are due
within seconds are held in memory, in the order of their times; one timer activates them.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.pool import Lease
from bridge.broker.errors import BrokerError
from bridge.broker.handover import HandOver, Publish
from bridge.machine import arrival
from bridge.machine.wheel import Bucket, Place, place
from bridge.sidecar.deletions import Deletions
from bridge.topology import names
from bridge.topology.parts import bucket_queue
from bridge.wire import stamp
from bridge.wire.journal import BucketState

if TYPE_CHECKING:
    from bridge.sidecar.leader import Leader

HELD_BYTES_MAX = 64 << 20
"""Bytes of unacked messages of one bucket; with the average size they give the prefetch."""

MESSAGE_OVERHEAD_BYTES = 1_000
"""Memory that Python needs for a held message beside the message's bytes."""

PREFETCH_MAX = 65_535
"""The largest prefetch: basic.qos has 16 bits for it."""

MOVE_PREFETCH = 500

SOON_MS = 1_000
"""A message that is due in less than this time is held, and not moved to a finer bucket."""

RETRY_S = 1.0
IDLE_S = 60.0

_ORDER = itertools.count()


class Buckets:
    """The buckets of an entity during one term of its sequencer."""

    def __init__(
        self, leader: Leader, connection: Lease, boot: str, clock: Callable[[], int]
    ) -> None:
        self._leader = leader
        self._boot = boot
        self._connection = connection
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._handover: HandOver | None = None
        self._held: list[tuple[int, int, stamp.Waiting, Delivery]] = []
        self._outstanding: Counter[Place] = Counter()
        self._tags: dict[Place, str] = {}
        self._places: dict[str, Place] = {}
        self._unplaced: list[Delivery] = []
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._has_unplaced = asyncio.Event()
        self._making = asyncio.Lock()
        self._deletions = Deletions(connection, leader.start)
        self._tasks: list[asyncio.Task[None]] = []

    async def declare(self) -> None:
        """Declare the buckets that the sequencer's memory names.

        RabbitMQ may have failed while a bucket was being made or removed. Such a bucket holds no
        message, but its queue may refuse messages, or take and never confirm them. So it is deleted
        first, unless RabbitMQ has not been started again since.
        """
        wheel = self._leader.sequencer.memory.wheel
        there, provisional = [], []
        for bucket in sorted(wheel.buckets.values(), key=lambda each: each.place.start_ms):
            bucket.is_open, bucket.count = False, 0
            if bucket.provisional_in is not None:
                queue, is_shared = self._queue(bucket.place), self._is_shared(bucket.place)
                if bucket.ends_ms <= self._clock() and not is_shared:
                    # An earlier term may have begun to delete the queue: finish the deletion.
                    bucket.is_open = True
                    self._deletions.begin(queue, partial(self._forget, bucket.place))
                    continue
                provisional.append(bucket.place)
                if bucket.provisional_in != self._boot and not is_shared:
                    self._deletions.begin(queue)
            there.append(bucket.place)
        for each in there:
            await self._declare(each)
        await self._fence(provisional)

    @property
    def is_changing(self) -> bool:
        """Whether a bucket is being made; memory and journal may differ meanwhile."""
        return self._making.locked()

    def begin(self) -> None:
        """Begin to consume and to remove buckets.

        The publications of an earlier term must be confirmed before: some go into a bucket whose
        time is over, and some are activations of messages that a bucket still holds.
        """
        self._tasks = [self._leader.start(each()) for each in (self._keep, self._place_unplaced)]

    async def close(self) -> None:
        """End all work and close the channel; held messages go back to their buckets."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._deletions.close()
        if self._channel is not None:
            self._channel.on_closed = None
            await self._channel.close()

    async def make(self, places: Iterable[Place]) -> None:
        """Make the missing ones of some buckets; messages can be published to them afterwards."""
        async with self._making:
            wheel = self._leader.sequencer.memory.wheel
            missing = [each for each in places if not wheel.is_usable(each)]
            for each in missing:
                await self._leader.write(
                    self._leader.sequencer.journal.note_bucket(each, BucketState.PROVISIONAL)
                )
                await self._declare(each)
            await self._fence(missing)
        self._wake.set()

    async def _fence(self, provisional: Sequence[Place]) -> None:
        """Have newly declared buckets outlast a kill of RabbitMQ, and note them as safe."""
        if not provisional:
            return
        await self._deletions.fence(await self._opened_channel())
        for each in provisional:
            await self._leader.write(
                self._leader.sequencer.journal.note_bucket(each, BucketState.SAFE)
            )
            self._leader.sequencer.memory.wheel.add(each)

    async def _forget(self, where: Place) -> None:
        self._leader.sequencer.memory.wheel.remove(where)
        del self._outstanding[where]
        journal = self._leader.sequencer.journal
        await self._leader.write(journal.note_bucket(where, BucketState.GONE))

    def fire(self) -> None:
        """Activate the held messages that are due, while there is room; then set the timer."""
        held, leader = self._held, self._leader
        now_ms = self._clock()
        while held and held[0][0] <= now_ms and leader.is_ready and leader.in_flight.has_room:
            due_ms, _, waiting, delivery = heapq.heappop(held)
            try:
                publications = leader.sequencer.activate(waiting, delivery.body, now_ms)
            except Exception as error:
                self._refuse(delivery, error)
                continue
            if not publications:
                self._drop(delivery)
                continue
            leader.submit(
                publications,
                acks=((delivery.channel, delivery.tag),),
                then=partial(self._count_out, self._places[delivery.consumer_tag]),
                site="scheduler.activate",
            )
            leader.meters.activated += 1
            leader.meters.lateness_ms.add(now_ms - due_ms)
        self._arm()

    @property
    def has_due(self) -> bool:
        """Whether a held message is due already."""
        return bool(self._held) and self._held[0][0] <= self._clock()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held and self._leader.is_ready and self._leader.in_flight.has_room:
            # The wall clock may be set meanwhile, so no timer is longer than a second.
            delay_s = (self._held[0][0] - self._clock()) / 1000
            self._timer = self._loop.call_later(min(max(delay_s, 0), 1.0), self.fire)

    async def _opened_channel(self) -> Channel:
        if self._channel is None:
            self._channel = channel = await self._connection.channel()
            channel.on_closed = self._leader.fail
            self._handover = HandOver(channel)
            await channel.publisher.confirm_select()
        return self._channel

    async def _declare(self, where: Place) -> None:
        channel = await self._opened_channel()
        queue = bucket_queue(self._leader.name, where.level, where.slot)
        wheel = self._leader.sequencer.memory.wheel
        await self._deletions.wait(queue.name)
        # Added before the declaration: RabbitMQ may fail without an answer and keep the queue.
        bucket = wheel.buckets.get(where) or wheel.add(where, provisional_in=self._boot)
        state = await channel.declarations.declare_queue(queue)
        bucket.count = max(bucket.count, state.messages)

    def _queue(self, where: Place) -> str:
        return names.bucket(self._leader.name, where.level, where.slot)

    async def _keep(self) -> None:
        """Consume each bucket when its time comes, and remove it when its time is over."""
        while True:
            self._wake.clear()
            wheel = self._leader.sequencer.memory.wheel
            for bucket in wheel.to_open(self._clock()):
                await self._open(bucket)
            for bucket in wheel.to_end(self._clock()):
                async with self._making:  # a later bucket may take the queue's name
                    if wheel.buckets.get(bucket.place) is bucket:  # not deleted meanwhile
                        await self._remove(bucket)
            has_rest = bool(wheel.to_end(self._clock()))
            next_ms = wheel.next_ms()
            wait_s = IDLE_S if next_ms is None else (next_ms - self._clock()) / 1000
            wait_s = min(max(wait_s, RETRY_S if has_rest else 0.0), IDLE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    async def _open(self, bucket: Bucket) -> None:
        channel = await self._opened_channel()
        average = self._leader.sequencer.memory.average_bytes + MESSAGE_OVERHEAD_BYTES
        prefetch = MOVE_PREFETCH if bucket.place.level else HELD_BYTES_MAX // average
        await channel.consumers.qos(min(max(prefetch, 16), PREFETCH_MAX))
        tag = f"{bucket.place.level}-{bucket.place.slot}"
        self._places[tag] = bucket.place
        self._tags[bucket.place] = tag
        bucket.is_open = True
        await channel.consumers.consume(self._queue(bucket.place), self._on_delivery, tag=tag)

    def _is_shared(self, where: Place) -> bool:
        """Whether another bucket has the same queue, which can happen after a long stop."""
        queue = self._queue(where)
        buckets = self._leader.sequencer.memory.wheel.buckets
        return any(each != where and self._queue(each) == queue for each in buckets)

    async def _remove(self, bucket: Bucket) -> None:
        """Begin to remove a bucket whose time is over, unless a message may be left in it."""
        channel = await self._opened_channel()
        where, queue = bucket.place, self._queue(bucket.place)
        # A deletion drops the queue's messages, and RabbitMQ confirms later publishes all the same.
        is_led_to = self._leader.in_flight.lead_to(queue) or channel.publisher.leads_to(queue)
        if queue in self._deletions or self._outstanding[where] or is_led_to:
            return
        state = await channel.declarations.declare_queue(queue, passive=True)
        # The count omits messages that another consumer holds: RabbitMQ may notice its end late.
        # And RabbitMQ reports "no messages, no consumers" when a queue does not answer in 0.25 s.
        ours = sum(self._queue(each) == queue for each in self._tags)
        if state.messages or state.consumers != ours or self._outstanding[where]:
            return
        await channel.consumers.cancel(self._tags.pop(where))
        if self._outstanding[where]:
            bucket.is_open = False
            return
        if self._is_shared(where):
            await self._forget(where)
            return
        # A kill of RabbitMQ may bring the queue back as one that refuses all messages. Until the
        # deletion is safe, the journal has the bucket as provisional: delete, then declare.
        bucket.provisional_in = self._boot
        journal = self._leader.sequencer.journal
        await self._leader.write(journal.note_bucket(where, BucketState.PROVISIONAL))
        self._deletions.begin(queue, partial(self._forget, where))

    def _on_delivery(self, delivery: Delivery) -> None:
        where = self._places[delivery.consumer_tag]
        self._outstanding[where] += 1
        try:
            self._sort(stamp.unwait(delivery.properties), delivery)
        except BrokerError:
            raise
        except Exception as error:
            self._refuse(delivery, error)

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        """Dead-letter a message of a bucket that no sequencer has put there."""
        leader = self._leader
        where = self._places[delivery.consumer_tag]
        leader.note_poison("bucket", self._queue(where), error)
        description = f"The message came in a queue of scheduled messages: {error}."
        command = arrival.refuse(
            delivery.properties, delivery.body, arrival.MISPLACED_MESSAGE, description
        )
        leader.submit(
            leader.sequencer.apply(command, self._clock()).publications,
            acks=((delivery.channel, delivery.tag),),
            then=partial(self._count_out, where),
            site="scheduler.activate",
        )

    def _sort(self, waiting: stamp.Waiting, delivery: Delivery) -> None:
        """Hold a message until its time, move it to a finer bucket, or drop a stale copy."""
        level = self._places[delivery.consumer_tag].level
        if not self._leader.sequencer.is_wanted(waiting):
            self._drop(delivery)
        elif level == 0 or waiting.due_ms - self._clock() < SOON_MS:
            self._hold(waiting, delivery)
        else:
            self._move(waiting, delivery)

    def _hold(self, waiting: stamp.Waiting, delivery: Delivery) -> None:
        is_next = not self._held or waiting.due_ms < self._held[0][0]
        heapq.heappush(self._held, (waiting.due_ms, next(_ORDER), waiting, delivery))
        if is_next:
            self._arm()

    def _move(self, waiting: stamp.Waiting, delivery: Delivery) -> None:
        """Hand a message over to a finer bucket, with its number and its time."""
        source = self._places[delivery.consumer_tag]
        target = place(waiting.due_ms, self._clock(), below=source.level)
        wheel = self._leader.sequencer.memory.wheel
        if not wheel.is_usable(target):
            self._unplaced.append(delivery)
            self._has_unplaced.set()
            return
        wheel.stored(target)
        fields = stamp.waiting(waiting.number, waiting.identity, waiting.due_ms, waiting.ttl_ms)
        properties = stamp.put(waiting.properties, fields)
        publish = Publish("", self._queue(target), properties, delivery.body)

        def done(error: BrokerError | None) -> None:
            if error is not None:
                self._leader.fail(error)
            self._count_out(source)

        assert self._handover is not None
        self._handover.submit(
            (publish,),
            acks=((delivery.channel, delivery.tag),),
            done=done,
            failpoint="scheduler.move",
        )

    async def _place_unplaced(self) -> None:
        """Make the finer buckets that are missing, and move the messages that wait for them."""
        while True:
            await self._has_unplaced.wait()
            self._has_unplaced.clear()
            unplaced, self._unplaced = self._unplaced, []
            moves = [(stamp.unwait(each.properties), each) for each in unplaced]
            now_ms = self._clock()
            places = {
                place(waiting.due_ms, now_ms, below=self._places[each.consumer_tag].level): None
                for waiting, each in moves
            }
            await self.make(places)
            for waiting, delivery in moves:
                self._sort(waiting, delivery)

    def _drop(self, delivery: Delivery) -> None:
        """Ack the copy of a message that was cancelled, or is active already."""
        self._leader.submit((), acks=((delivery.channel, delivery.tag),), site="scheduler.activate")
        self._count_out(self._places[delivery.consumer_tag])

    def _count_out(self, where: Place) -> None:
        self._outstanding[where] -= 1
        self._leader.sequencer.memory.wheel.left(where)
