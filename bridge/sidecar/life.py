"""One life of an entity's sequencer: from the first arrival that RabbitMQ gives it to the end.

**Theory.** Every bridge process consumes every inbox; an inbox has a single active consumer, whom
RabbitMQ elects. So the first arrival means: this process is the sequencer now. It then reads the
journal's tail, and only then begins to carry out arrivals. Arrivals, publications and acks go over
one channel, and office is given up by closing it: RabbitMQ then gives back what was not acked, in
order, before anything newer, to the next one. A publication that fails ends the life.

An idle inbox would elect somebody without telling. Therefore there is a **baton**: a message that
is always in the inbox, held unacked by whoever owns it. When the owner dies, its successor gets it.
Under load the baton is passed on (published anew, then acked), so that the queue can forget what
lies before it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from bridge.broker import failpoint
from bridge.broker.channel import Channel
from bridge.broker.connection import Connection
from bridge.broker.consuming import Delivery
from bridge.broker.errors import BrokerError, ChannelClosed
from bridge.broker.handover import Acks, HandOver, Publish
from bridge.machine.arrival import BATON_KIND, Baton, Command, Send, read
from bridge.machine.replay import Replay
from bridge.machine.sequencer import Answer, Publication, Sequencer, marker
from bridge.machine.wheel import Place, place
from bridge.sidecar.buckets import Buckets
from bridge.sidecar.clock import now_ms
from bridge.sidecar.office import Flight, Office
from bridge.sidecar.tail import Tail, steps
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item

WINDOW = 2_000
"""Publications that may be unconfirmed; an arrival that holds more goes alone."""

SNAPSHOT_ENTRIES = 2_000
SNAPSHOT_BYTES = 16 << 20
SNAPSHOT_ENTRIES_MAX = 20_000
"""A snapshot is written after so many entries or bytes; a large one not before the journal has
grown by twice its size, but after the maximum of entries at the latest."""

BATON_ARRIVALS = 50
"""So many arrivals make it worth while to pass the baton on."""

RETURNING_S = 3.0
"""So long arrivals of an earlier life may still come again: RabbitMQ gives them back at once."""

MARGIN_S = 2.0
"""An ack that was sent within this time may not have reached the inbox when RabbitMQ failed."""


class Life:
    """Owns an entity's inbox until it fails or is stopped.

    Attributes:
        name: the entity.
        life: this life's identity.
        sequencer: who gives the numbers; there once office was taken.
        meters: the entity's counters.
        is_ready: it is in office and carries out arrivals.
        has_room: whether more may be published now.
    """

    sequencer: Sequencer

    def __init__(
        self,
        office: Office,
        connection: Connection,
        replies: Channel,
        boot: str,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.name = office.queue.name
        self.life = os.urandom(16)
        self.meters = office.meters
        self._office = office
        self._connection = connection
        self._replies = replies
        self._boot = boot
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._elected = asyncio.Event()
        self._landed = asyncio.Event()
        self._arrived: deque[Delivery] = deque()
        self._flights: dict[int, Flight] = {}
        self._serials = itertools.count()
        self._returning: Counter[tuple[bytes, bytes]] = Counter()
        self._late_acks: dict[int, int] = {}
        self._ages: deque[tuple[float, int]] = deque()
        self._buckets = Buckets(self, connection, boot, clock)
        self._baton: Delivery | None = None
        self._arrivals_since_baton = 0
        self._has_own_baton = False
        self.is_ready = False
        self._is_pump_due = False
        self._making: asyncio.Task[None] | None = None
        self._snapshot_entries = 0
        self._snapshot_bytes = 0
        self._snapshot_size = 0

    @property
    def has_room(self) -> bool:
        """Whether more may be published now."""
        return self._handover.in_flight < WINDOW

    async def run(self) -> None:
        """Live until `stop`; raises what ended it otherwise."""
        main = asyncio.create_task(self._main(), name=f"sequencer {self.name}")
        try:
            await asyncio.wait((main, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                await main
            await self._ended
        finally:
            self.is_ready = False
            for task in (main, self._making):
                if task is not None:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
            await self._buckets.close()
            if hasattr(self, "_channel"):
                self._channel.on_closed = None
                await self._channel.close()
            if not self._ended.done():
                self._ended.cancel()
            self.meters.is_active = False

    async def stop(self, timeout_s: float = 2.0) -> None:
        """Carry out nothing more, let what was published be confirmed, and end."""
        self.is_ready = False
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_landed()
        except TimeoutError:
            pass
        if not self._ended.done():
            self._ended.set_result(None)

    def fail(self, error: Exception) -> None:
        """End this life."""
        self.is_ready = False
        if not self._ended.done():
            self._ended.set_exception(error)
            # Whoever runs this life may be gone already.
            self._ended.exception()

    async def write(self, publication: Publication) -> None:
        """Publish an entry of the journal's and wait until it is confirmed."""
        confirmed: asyncio.Future[None] = self._loop.create_future()
        self.submit((publication,), site="sequencer.journal", confirmed=confirmed)
        await confirmed

    def submit(
        self,
        publications: Sequence[Publication],
        *,
        acks: Acks = (),
        answer: Answer | None = None,
        site: str,
        native: Item | None = None,
        then: Callable[[], None] | None = None,
        confirmed: asyncio.Future[None] | None = None,
    ) -> None:
        """Publish; when all is confirmed, ack, then answer."""
        if not publications:
            self._handover.submit((), acks=acks, done=self._acked, failpoint=site)
            if answer is not None:
                self._tell(answer)
            return
        serial = next(self._serials)
        first_entry = self.sequencer.entries - len(publications)
        self._flights[serial] = Flight(first_entry, publications, answer, native)

        def done(error: BrokerError | None) -> None:
            if error is not None:
                self.fail(error)
                if confirmed is not None and not confirmed.done():
                    confirmed.set_exception(error)
                return
            del self._flights[serial]
            if answer is not None:
                self._tell(answer)
            if then is not None:
                then()
            if confirmed is not None and not confirmed.done():
                confirmed.set_result(None)
            if not self._flights:
                self._landed.set()
            if not self._is_pump_due and self.is_ready:
                self._is_pump_due = True
                self._loop.call_soon(self._pump)

        publishes = cast("Sequence[Publish]", publications)
        self._handover.submit(publishes, acks=acks, done=done, failpoint=site)

    def _acked(self, error: BrokerError | None) -> None:
        if error is not None:
            self.fail(error)

    async def _main(self) -> None:
        office = self._office
        self._channel = channel = await self._connection.channel()
        channel.on_closed = self.fail
        await channel.confirm_select()
        self._handover = HandOver(channel)
        inbox = names.inbox(self.name)
        await self._handover.move((self._new_baton(),), failpoint="sequencer.baton")
        await channel.qos(office.prefetch)
        await channel.consume(inbox, self._on_delivery, on_cancel=self._on_cancel)
        await self._elected.wait()
        await self._take_office()
        self.meters.is_active = True
        self.meters.lives += 1
        self.is_ready = True
        self._pump()

    async def _take_office(self) -> None:
        """Learn what the last sequencer knew, and finish what it left."""
        office = self._office
        replay = await self._read_tail()
        flights: list[Flight] = []
        if office.sequencer is not None and office.is_successor(replay.lives):
            # Nobody else was the sequencer in between: what this process knew is still true.
            flights = list(office.flights.values())
            for flight in flights:
                for each in flight.publications:
                    replay.feed(Properties.decode(each.properties), each.body)
            learnt = replay.result()
            memory = office.sequencer.memory
            memory.known, memory.activated = learnt.known, learnt.activated
            memory.cancelled, memory.entries = learnt.cancelled, learnt.entries
            self.sequencer = office.sequencer
            self.sequencer.update(office.queue, office.tier)
        else:
            self.sequencer = Sequencer(office.queue, office.tier, replay.result())
        office.sequencer, office.life, office.flights = self.sequencer, self.life, self._flights
        office.attempts.clear()
        self._snapshot_entries = self.sequencer.entries
        self._snapshot_bytes = self.sequencer.bytes
        self._flights.update((next(self._serials), flight) for flight in flights)
        await self._buckets.start()
        await self._publish_again()
        self._write_snapshot()
        await self._all_landed()
        self._loop.call_later(RETURNING_S, self._forget_tail)

    async def _publish_again(self) -> None:
        """Publish what an earlier life here published and did not see confirmed."""
        flights = list(self._flights.values())
        self._flights.clear()
        for flight in flights:
            if flight.native is not None:
                self._returning[flight.native.properties, flight.native.body] += 1
            self.sequencer.entries += len(flight.publications)
            self.submit(
                flight.publications,
                answer=flight.answer,
                native=flight.native,
                site="sequencer.again",
            )

    async def _read_tail(self) -> Replay:
        queue = self._office.queue
        tail = Tail(self._connection, names.journal(self.name))
        entry = cast("Publish", marker(queue, self.life, self._boot))
        self._office.attempts.add(self.life)
        await tail.mark(
            lambda: self._handover.move((entry,), failpoint="sequencer.journal"), self.life
        )
        for step in steps():
            replay = Replay(
                is_partitioned=queue.enable_partitioning, life=self.life, fingerprint=self._boot
            )
            start = tail.end - step
            first = await tail.read(start, replay.feed)
            if start <= 0 or first > start or replay.is_sufficient():
                return replay
        raise AssertionError("the steps never end")

    def _on_delivery(self, delivery: Delivery) -> None:
        self._arrived.append(delivery)
        if self.is_ready:
            if not self._is_pump_due:
                self._is_pump_due = True
                self._loop.call_soon(self._pump)
        elif not self._elected.is_set():
            self._elected.set()

    def _on_cancel(self, tag: str) -> None:
        self.fail(ChannelClosed(404, f"the inbox of {self.name!r} was deleted"))

    def _pump(self) -> None:
        """Carry out arrivals as far as there is room."""
        try:
            self._pump_all()
        except Exception as error:
            self.fail(error)

    def _pump_all(self) -> None:
        self._is_pump_due = False
        if self._buckets.has_due:
            self._buckets.fire()
        arrived = self._arrived
        while arrived and self.is_ready and self._making is None and self.has_room:
            delivery = arrived.popleft()
            command = read(
                delivery.properties,
                delivery.body,
                detects_duplicates=self._office.queue.requires_duplicate_detection,
            )
            if type(command) is Baton:
                self._take_baton(delivery, command.life)
            elif not self._carry_out(delivery, command):
                arrived.appendleft(delivery)
                break
        self._pass_baton()
        self._snapshot_when_due()
        meters, sequencer = self.meters, self.sequencer
        meters.backlog, meters.in_flight = len(arrived), self._handover.in_flight
        meters.published, meters.pending = sequencer.entries, len(sequencer.memory.pending)
        meters.buckets = len(sequencer.memory.wheel.buckets)

    def _carry_out(self, delivery: Delivery, command: Command) -> bool:
        """Carry out one arrival; False when a bucket must be made first."""
        now = self._clock()
        sequencer = self.sequencer
        dues_ms = sequencer.dues_ms(command, now)
        if dues_ms:
            missing = sequencer.memory.wheel.missing(dues_ms, now)
            if missing:
                self._making = self._loop.create_task(self._make(missing))
                return False
        self._arrivals_since_baton += 1
        self.meters.arrivals += 1
        acks: Acks = ((self._channel, delivery.tag),)
        native = None
        if isinstance(command, Send) and command.identity is None:
            native = command.items[0]
            if self._returning and self._returning[native.properties, native.body] > 0:
                self._returning[native.properties, native.body] -= 1
                self.submit((), acks=acks, site="sequencer.number")
                return True
        young = self._buckets.youngest(place(due, now) for due in dues_ms)
        publications, answer = sequencer.apply(command, now)
        then = None
        if young is not None and publications:
            self._late_acks[delivery.tag] = sequencer.entries - len(publications)
            then = partial(self._buckets.when_safe, young, partial(self._ack_late, delivery.tag))
            acks = ()
        self.submit(
            publications,
            acks=acks,
            answer=answer,
            native=native,
            then=then,
            site="sequencer.number",
        )
        return True

    def _ack_late(self, tag: int) -> None:
        """Ack what went into a bucket that was very young, and is safe now."""
        if self.is_ready:
            del self._late_acks[tag]
            acks = ((self._channel, tag),)
            self._handover.submit((), acks=acks, done=self._acked, failpoint="sequencer.number")

    async def _make(self, missing: Sequence[Place]) -> None:
        try:
            await self._buckets.make(missing)
        except BrokerError as error:
            self.fail(error)
        finally:
            self._making = None
        self._pump()

    def _new_baton(self) -> Publish:
        properties = Properties(
            headers={headers.KIND: ("S", BATON_KIND.encode())}, delivery_mode=2
        ).encode()
        return Publish("", names.inbox(self.name), properties, self.life)

    def _take_baton(self, delivery: Delivery, life: bytes) -> None:
        self._has_own_baton |= life == self.life
        if self._baton is not None:
            acks = ((self._channel, self._baton.tag),)
            self._handover.submit((), acks=acks, done=self._acked, failpoint="sequencer.baton")
        self._baton = delivery

    def _pass_baton(self) -> None:
        if self._baton is None or self._arrivals_since_baton < BATON_ARRIVALS:
            return
        acks = ((self._channel, self._baton.tag),)
        self._baton, self._arrivals_since_baton = None, 0
        self._handover.submit(
            (self._new_baton(),), acks=acks, done=self._acked, failpoint="sequencer.baton"
        )

    def _snapshot_when_due(self) -> None:
        entries = self.sequencer.entries - self._snapshot_entries
        if entries < SNAPSHOT_ENTRIES and (
            self.sequencer.bytes - self._snapshot_bytes < SNAPSHOT_BYTES
        ):
            return
        grown = self.sequencer.bytes - self._snapshot_bytes
        if self.is_ready and (grown >= 2 * self._snapshot_size or entries >= SNAPSHOT_ENTRIES_MAX):
            self._write_snapshot()

    def _write_snapshot(self) -> None:
        entries = self.sequencer.entries
        oldest = next(iter(self._flights.values()), None)
        first = entries if oldest is None else oldest.first_entry
        late = next(iter(self._late_acks.values()), entries)
        span = entries - min(first, late, self._entries_before_margin())
        parts = self.sequencer.snapshot(self.life, self._boot, span)
        self.submit(parts, site="sequencer.journal")
        self._snapshot_entries, self._snapshot_bytes = self.sequencer.entries, self.sequencer.bytes
        self._snapshot_size = sum(len(part.body) for part in parts)

    def _entries_before_margin(self) -> int:
        """Return how many entries there were when acks of that time have surely arrived."""
        now = self._loop.time()
        ages = self._ages
        if not ages or now - ages[-1][0] > MARGIN_S / 8:
            ages.append((now, self.sequencer.entries))
        while len(ages) > 1 and now - ages[1][0] > MARGIN_S:
            ages.popleft()
        return ages[0][1]

    def _forget_tail(self) -> None:
        if not self.is_ready:
            return
        if not self._has_own_baton:
            self._loop.call_later(RETURNING_S, self._forget_tail)
            return
        self.sequencer.forget_tail()
        self._returning.clear()

    def _tell(self, answer: Answer) -> None:
        properties = Properties(correlation_id=answer.to.correlation_id).encode()
        try:
            self._replies.publish("", answer.to.queue, properties, answer.body, mandatory=False)
        except BrokerError:
            return  # Whoever asked waits in vain, and asks again.
        if failpoint.IS_ARMED:
            self._replies.flush()
            failpoint.reach("sequencer.answered")

    async def _all_landed(self) -> None:
        while self._flights and not self._ended.done():
            self._landed.clear()
            await self._landed.wait()
