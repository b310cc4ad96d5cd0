"""The scheduled messages that a leader holds unacked: until due, or in a bucket, or dropped.

They come out of buckets that are open, and out of the inbox when their bucket is not made yet.
A message that is due within a second is held in memory, in the order of the times, and of the
numbers for one time; one timer activates it. Others go to a finer bucket, or wait until that is
made. A message is acked when it is active or in its next bucket, an arrival of the inbox when that
is so for all messages in it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.broker.handover import Acks, HandOver, Publish
from bridge.machine.inbox import arrival
from bridge.machine.inbox.applied import Unplaced
from bridge.machine.inbox.imports import SOON_MS as IMPORTS_SOON_MS
from bridge.machine.inbox.wheel import LEVELS, BucketKey, place
from bridge.sidecar.leader.awaiting_buckets import AwaitingBuckets, Work
from bridge.sidecar.leader.unacked_arrivals import UnackedArrival
from bridge.topology import names
from bridge.wire import stamp

if TYPE_CHECKING:
    from bridge.sidecar.leader.leader import Leader

SOON_MS = 1_000
"""A message that is due in less than this time is held, and not moved to a finer bucket."""

NO_ROOM_S = 0.1
"""Time between two looks while what is due may not be activated."""

HELD_S = 1.0
"""The same while a migration holds the entity."""

_SERIALS = itertools.count()


class _Bucketed(NamedTuple):
    """A delivery that came out of a bucket, with one scheduled message."""

    delivery: Delivery
    bucket: BucketKey

    @property
    def acks(self) -> Acks:
        """The ack of the delivery, when its message is confirmed in its next place."""
        return ((self.delivery.channel, self.delivery.tag),)


_Origin = _Bucketed | UnackedArrival


class _Message(NamedTuple):
    """One scheduled message of a delivery."""

    waiting: stamp.Waiting
    body: bytes
    origin: _Origin


class ScheduledMessages:
    """The unacked scheduled messages of one term.

    Args:
        leader: the term.
        awaiting: the work that waits for buckets.
        clock: the time (UTC ms).
        on_left: called with a bucket when a message of it is acked.

    Attributes:
        handover: moves messages to buckets; set before the first message comes.
    """

    handover: HandOver

    def __init__(
        self,
        leader: Leader,
        awaiting: AwaitingBuckets,
        clock: Callable[[], int],
        on_left: Callable[[BucketKey], None],
    ) -> None:
        self._leader = leader
        self._awaiting = awaiting
        self._clock = clock
        self._on_left = on_left
        self._loop = asyncio.get_running_loop()
        self._held: list[tuple[int, int, int, _Message]] = []
        self._unnumbered: deque[Work] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_room(self) -> bool:
        """Whether more arrivals may be taken: those that wait for a bucket stay in memory."""
        return self._awaiting.has_room

    @property
    def has_due(self) -> bool:
        """Whether something can be done now that waited for its time, or for a bucket."""
        if self._awaiting.ready or self._unnumbered:
            return True
        return bool(self._held) and self._held[0][0] <= self._clock()

    def await_stored(
        self, arrival: UnackedArrival, unplaced: Sequence[Unplaced]
    ) -> Callable[[], None]:
        """Take messages of an arrival that have no buckets yet, but a place in the journal soon.

        Returns what must be called when the journal has them.
        """
        arrival.left += len(unplaced)

        def stored() -> None:
            for waiting, body in unplaced:
                self._sort(_Message(waiting, body, arrival))

        return stored

    def take(self, delivery: Delivery, where: BucketKey) -> None:
        """Take a message that has come out of a bucket."""
        origin = _Bucketed(delivery, where)
        try:
            waiting = stamp.unwait(delivery.properties)
            self._sort(_Message(waiting, delivery.body, origin))
        except BrokerError:
            raise
        except Exception as error:
            self._refuse(delivery.properties, delivery.body, origin, error)

    def fire(self) -> None:
        """Do what is due, while there is room; then set the timer."""
        leader, awaiting = self._leader, self._awaiting
        now_ms = self._clock()
        awaiting.look(now_ms)
        has_room = leader.takes and leader.in_flight.has_room
        if has_room and (awaiting.ready or (self._unnumbered and not leader.is_held)):
            leader.go_on()  # there is room again
        while self._unnumbered and self._may_activate:
            self._unnumbered.popleft()()
        while awaiting.ready and leader.takes and leader.in_flight.has_room:
            awaiting.ready.popleft()()
        held = self._held
        while held and held[0][0] <= now_ms and self._may_activate:
            due_ms, _, _, message = heapq.heappop(held)
            waiting, body, origin = message
            try:
                publications = leader.sequencer.activate(waiting, body, now_ms)
            except Exception as error:
                self._refuse(waiting.properties, body, origin, error)
                continue
            if not publications:
                self._drop(origin)
                continue
            leader.submit(
                publications,
                acks=_acks_of(origin),
                then=partial(self._count_out, origin),
                site="scheduler.activate",
            )
            leader.meters.activated += 1
            leader.meters.lateness_ms.add(now_ms - due_ms)
        self._arm()

    @property
    def _may_activate(self) -> bool:
        leader = self._leader
        return leader.takes and not leader.is_held and leader.in_flight.has_room

    def await_bucket(self, where: BucketKey, until_ms: int, work: Work, size_bytes: int) -> None:
        """Have work on a message wait until a bucket is made, and no longer than `until_ms`."""
        self._awaiting.add(where, until_ms, work, size_bytes)
        self._arm()

    def await_number(self, where: BucketKey, until_ms: int, number: Work, size_bytes: int) -> None:
        """Have a message that gets its number now wait likewise, and for the end of a hold.

        What has its number is stored during a hold: it would keep its arrival unacked.
        """

        def ready() -> None:
            if self._leader.is_held:
                self._unnumbered.append(number)
            else:
                number()

        self.await_bucket(where, until_ms, ready, size_bytes)

    def close(self) -> None:
        """End the timer; RabbitMQ takes back what is unacked when the channels are closed."""
        self._unnumbered.clear()
        self._awaiting.close()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        leader = self._leader
        times = [each[0] for each in self._held[:1]]
        if (next_ms := self._awaiting.next_ms) is not None:
            times.append(next_ms)
        if times and leader.is_ready:
            # The wall clock may be set meanwhile, so no timer is longer than a second.
            delay_s = (min(times) - self._clock()) / 1000
            least_s = HELD_S if leader.is_held else 0.0 if self._may_activate else NO_ROOM_S
            self._timer = self._loop.call_later(min(max(delay_s, least_s), 1.0), self.fire)

    def _sort(self, message: _Message) -> None:
        """Hold a message until its time, move it to a finer bucket, or drop a stale copy."""
        waiting, _, origin = message
        level = origin.bucket.level if isinstance(origin, _Bucketed) else LEVELS
        now_ms = self._clock()
        due_ms = waiting.due_ms
        if self._leader.is_held:
            # An arrival that waits in memory for the end of the hold would be one of its prefetch.
            due_ms = max(due_ms, now_ms + IMPORTS_SOON_MS)
        if not self._leader.sequencer.is_wanted(waiting):
            self._drop(origin)
        elif level == 0 or due_ms - now_ms < SOON_MS:
            self._hold(message)
        else:
            self._move(message, place(due_ms, now_ms, below=level), due_ms - SOON_MS)

    def _hold(self, message: _Message) -> None:
        due_ms = message.waiting.due_ms
        is_next = not self._held or due_ms < self._held[0][0]
        # Messages come from several channels, so in no order: some wait for their bucket first.
        heapq.heappush(self._held, (due_ms, message.waiting.number, next(_SERIALS), message))
        if is_next:
            self._arm()

    def _move(self, message: _Message, target: BucketKey, until_ms: int) -> None:
        """Hand a message over to a finer bucket, with its number and its time.

        Args:
            until_ms: how long it waits for the bucket to be made.
        """
        waiting, body, origin = message
        wheel = self._leader.sequencer.memory.wheel
        if not wheel.is_usable(target):
            self.await_bucket(target, until_ms, partial(self._sort, message), len(body))
            return
        wheel.stored(target)
        fields = stamp.waiting(waiting.number, waiting.identity, waiting.due_ms, waiting.ttl_ms)
        properties = stamp.put(waiting.properties, fields)
        bucket = names.bucket(self._leader.name, target.level, target.slot)

        def done(error: BrokerError | None) -> None:
            if error is not None:
                self._leader.fail(error)
            else:
                self._count_out(origin)

        self.handover.submit(
            (Publish("", bucket, properties, body),),
            acks=_acks_of(origin),
            done=done,
            failpoint="scheduler.move",
        )

    def _drop(self, origin: _Origin) -> None:
        """Ack the copy of a message that was cancelled, or is active already."""
        if acks := _acks_of(origin):
            self._leader.submit((), acks=acks, site="scheduler.activate")
        self._count_out(origin)

    def _refuse(self, properties: bytes, body: bytes, origin: _Origin, error: Exception) -> None:
        """Dead-letter a message that no sequencer has scheduled, or that cannot be activated."""
        leader = self._leader
        name = names.inbox(leader.name)
        if isinstance(origin, _Bucketed):
            name = names.bucket(leader.name, *origin.bucket)
        leader.note_poison("bucket", name, error)
        description = f"The message came in a queue of scheduled messages: {error}."
        command = arrival.refuse(properties, body, arrival.MISPLACED_MESSAGE, description)
        leader.submit(
            leader.sequencer.apply(command, self._clock()).publications,
            acks=_acks_of(origin),
            then=partial(self._count_out, origin),
            site="scheduler.activate",
        )

    def _count_out(self, origin: _Origin) -> None:
        """Note that a message is in its next place, or dropped; ack an arrival after its last."""
        if isinstance(origin, _Bucketed):
            self._on_left(origin.bucket)
        else:
            self._leader.unacked.count_out(origin)


def _acks_of(origin: _Origin) -> Acks:
    """Return what is acked with one message's hand-over: nothing of an arrival of the inbox."""
    return origin.acks if isinstance(origin, _Bucketed) else ()
