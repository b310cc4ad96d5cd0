"""The buckets of one entity: made, opened, emptied in time, removed.

Everything that comes out of a bucket is unacked until it is active, or in a finer bucket. What is
due within seconds is held here, in memory, in the order of its times; one timer fires it.
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
"""Bodies that one bucket may have unacked here."""

MESSAGE_OVERHEAD_BYTES = 1_000
"""What a held message costs in Python beside its bytes."""

PREFETCH_MAX = 65_535
"""basic.qos counts in 16 bits."""

MOVE_PREFETCH = 500

SOON_MS = 1_000
"""What is due sooner is held, and not moved to a finer bucket any more."""

RETRY_S = 1.0
IDLE_S = 60.0

_ORDER = itertools.count()


class Buckets:
    """The buckets that one term of a sequencer looks after."""

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
        """Declare the buckets that are known.

        RabbitMQ may have failed over one that was being made or removed. Nothing is stored in it;
        but it may be there as a queue that refuses messages, or takes and never confirms them.
        """
        wheel = self._leader.sequencer.memory.wheel
        there, provisional = [], []
        for bucket in sorted(wheel.buckets.values(), key=lambda each: each.place.start_ms):
            bucket.is_open, bucket.count = False, 0
            if bucket.provisional_in is not None:
                queue, is_shared = self._queue(bucket.place), self._is_shared(bucket.place)
                if bucket.ends_ms <= self._clock() and not is_shared:
                    # An earlier term may have begun to delete it: it is not declared any more.
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
        """Whether one is being made: memory and journal need not say the same."""
        return self._making.locked()

    def begin(self) -> None:
        """Begin to open and to remove them.

        What an earlier term had on its way must be confirmed: some of it goes into a bucket that is
        over, some is the successor of what a bucket holds.
        """
        self._tasks = [self._leader.start(each()) for each in (self._keep, self._place_unplaced)]

    async def close(self) -> None:
        """Let go of everything; what was held goes back to its bucket."""
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
        """Make buckets; when this returns messages can be published to them."""
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
        """Have buckets that were just declared outlast a kill of RabbitMQ."""
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
        """Activate what is due, as far as there is room; then wait for the next."""
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
        """Whether something waits for room."""
        return bool(self._held) and self._held[0][0] <= self._clock()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held and self._leader.is_ready and self._leader.in_flight.has_room:
            # The wall clock may be set; the loop's never is. So no timer is longer than a second.
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
        # Known before it can be there: RabbitMQ may fail and keep it, though it never answers.
        bucket = wheel.buckets.get(where) or wheel.add(where, provisional_in=self._boot)
        state = await channel.declarations.declare_queue(queue)
        bucket.count = max(bucket.count, state.messages)

    def _queue(self, where: Place) -> str:
        return names.bucket(self._leader.name, where.level, where.slot)

    async def _keep(self) -> None:
        """Open buckets when their time comes, and remove those that are over."""
        while True:
            self._wake.clear()
            wheel = self._leader.sequencer.memory.wheel
            for bucket in wheel.to_open(self._clock()):
                await self._open(bucket)
            for bucket in wheel.to_end(self._clock()):
                async with self._making:  # a later bucket may take its name
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
        """Whether a later bucket has this one's queue: after a long stop they can meet."""
        queue = self._queue(where)
        buckets = self._leader.sequencer.memory.wheel.buckets
        return any(each != where and self._queue(each) == queue for each in buckets)

    async def _remove(self, bucket: Bucket) -> None:
        """Begin to remove a bucket that is over, unless something may be left in it."""
        channel = await self._opened_channel()
        where, queue = bucket.place, self._queue(bucket.place)
        # A queue is deleted with what it holds, and what comes later is confirmed all the same.
        is_led_to = self._leader.in_flight.lead_to(queue) or channel.publisher.leads_to(queue)
        if queue in self._deletions or self._outstanding[where] or is_led_to:
            return
        state = await channel.declarations.declare_queue(queue, passive=True)
        # What another consumer holds is not counted: RabbitMQ may be late to notice its end. And
        # it says "no messages, no consumers" of a queue that does not answer it within 0.25 s.
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
        # A kill of RabbitMQ may bring it back as a queue that refuses everything: so long as that
        # can be, it is known as one to be deleted and declared again.
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
        """Make a dead letter of what the sequencer has not put into a bucket."""
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
        """Hold what came out of a bucket until its time, or move it to a finer one."""
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
        """Hand a message over to a finer bucket; it keeps its number and its time."""
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
        """Make the finer buckets that are missing, and move what waits for them."""
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
        """Forget the copy of a message that was cancelled, or is active already."""
        self._leader.submit((), acks=((delivery.channel, delivery.tag),), site="scheduler.activate")
        self._count_out(self._places[delivery.consumer_tag])

    def _count_out(self, where: Place) -> None:
        self._outstanding[where] -= 1
        self._leader.sequencer.memory.wheel.left(where)
