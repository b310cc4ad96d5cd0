"""One term of an entity's leader: from the first arrival of the inbox to the end of the term.

**Theory.** Two bridge processes consume each inbox (`machine.inbox.standbys`). An inbox has a
single active consumer, which RabbitMQ elects. So the first arrival means: this process is the
leader now. The leader reads the journal's tail, and only then begins to carry out arrivals.
Arrivals and acks go over one channel, publications over another, so that RabbitMQ works on both at
once. A term ends by closing both channels, the publishing one first. RabbitMQ then returns the
unacked arrivals, in order and before anything newer, to the next leader. When both channels end at
once, the next leader may get arrivals before RabbitMQ has handled the last publications. So it
waits for the end of the channel whose address is in the journal's last markers and snapshots. A
publication that fails ends the term.

A term that ends in order writes a commit marker to the journal: all its publications are confirmed.
Without one, the next leader publishes again whatever may not have reached its queue. After a kill,
a quorum queue may notice the channel's end before it applies all messages of the channel. It drops
the rest, which the journal has. A term that another bridge is to follow ends in order only
(`orderly_end`).

    arrivals -> read -> machine.sequencer -> in flight -> (confirmed) -> ack, answer
                            ^                 ^
                          buckets (messages that are due)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from bridge.background.waits import Wait
from bridge.broker.connection.address import is_there, take_address
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.errors import AckLost, BrokerError, NotFound, PublishRefused
from bridge.broker.handover import Acks
from bridge.broker.ready_counts import queue_state
from bridge.engine.clock import now_ms
from bridge.machine.inbox import arrival
from bridge.machine.inbox.applied import Applied
from bridge.machine.inbox.arrival import Command, Commit, SendCommand, TransactionCommand
from bridge.machine.inbox.commits import answer_failed, apply_transaction
from bridge.machine.inbox.journal_entries import commit_marker
from bridge.machine.inbox.poisoned_envelope import apply_each, is_divisible
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.wheel import BucketKey
from bridge.model.entity import SendEntity, Topic
from bridge.sidecar.leader.accepted_ids import Segments, read_history
from bridge.sidecar.leader.arrival_buffer import ArrivalBuffer
from bridge.sidecar.leader.awaited_queue import await_made
from bridge.sidecar.leader.buckets import Buckets
from bridge.sidecar.leader.deferred_queues import DeferredQueues
from bridge.sidecar.leader.in_flight import BEYOND, InFlight
from bridge.sidecar.leader.inherited import Inherited
from bridge.sidecar.leader.journal_again import publish_again
from bridge.sidecar.leader.large_arrival import LargeArrival, large_arrival
from bridge.sidecar.leader.leader_state import LeaderState, TermOver, Unconfirmed
from bridge.sidecar.leader.orderly_end import OrderlyEnd
from bridge.sidecar.leader.ownership_token import SITE, OwnershipToken
from bridge.sidecar.leader.snapshots import Snapshots
from bridge.sidecar.leader.takeover import read_journal, take_over
from bridge.sidecar.leader.target_search import TargetSearch
from bridge.sidecar.leader.transfer_queue import TransferQueue
from bridge.sidecar.leader.unacked_arrivals import UnackedArrival, UnackedArrivals
from bridge.sidecar.shared_connection import SharedConnection
from bridge.topology import names, parts
from bridge.topology.shards import queues_by_key
from bridge.wire.envelope import Item

FORGET_EVERY_S = 0.5

LARGE_S = 0.01
"""How long arrivals with many messages are carried out in one turn of the event loop."""

ELECTED_S = 1.0
"""Time within which the active consumer has a delivery; RabbitMQ does not tell a consumer that it
is active. Without a delivery the leader is another process."""

RETURNING_S = 3.0
"""Time after a takeover until the first check whether all arrivals that earlier terms left unacked
have come again: RabbitMQ returns them at once."""

STOP_S = 2.0
"""How long a term waits for its publications' confirms when its process stops, which has 3 s for
all (`cli.stopping`), and after a publication has failed."""

BESIDE_S = STOP_S / 2
"""How long of that for the batch of a subscription that catches up: its queue may be dead."""

KEPT_S = 60.0
"""How long a term that lacks a resource keeps its inbox: the bridge makes it again within a poll of
the definitions, unless it may not."""


Apply = Callable[[Sequencer, Any, int], Applied]
"""Carries out a command at a time (UTC ms)."""
_WHILE_HELD = (
    arrival.TokenArrival
    | arrival.Used
    | arrival.ImportCommand
    | arrival.Inquiry
    | arrival.CarriedOut
)
"""What is carried out while a migration holds the entity.

An inquiry may pass a commit: that is refused when the hold ends, as one that comes late.
"""


async def _first(*waits: Awaitable[object], within_s: float | None = None) -> None:
    """Wait until the first of some waits is over, or the time, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _nothing() -> None:
    pass


async def _at_once(error: BrokerError) -> None:
    """Wait for nothing: nobody makes resources again."""


async def _looked_already() -> None:
    """Wait for nothing: nobody reads definitions."""


class Leader:
    """One term: waits for the inbox, leads the entity, and ends at a failure or by `stop`.

    Args:
        made_again: called with the error that ends a term; waits while a resource of the entity is
            missing. Until then the term keeps its inbox: another process would lead through an
            exchange that does not have all its bindings yet.
        looked: see `TargetSearch`.

    Attributes:
        name: the entity's path.
        sequencer: gives the numbers; set during the takeover.
        in_flight: the unconfirmed publications; set once the publishing channel is open.
        unacked: the arrivals that need more than one hand-over; set with `in_flight`.
        orderly_end: ends the term when all is confirmed; set with `in_flight`.
        meters: the entity's counters.
        connection: the connection that the term works on.
        waits: takes note of what waits, for health.
        elected: set when RabbitMQ has elected this process: it takes over, or leads.
        over: why the term ends, or has ended, without a fault; else `None`.
        is_ready: the takeover is done, and the leader carries out arrivals.
        on_consuming: called when RabbitMQ may elect this process from now on.
        on_leading: called when the takeover is done.
        on_refused: called when a queue refused a publication; its setter must end the term.
        may_publish: the sequencer's publications may be published, an earlier term's included.
        has_begun: whether this term has led, whether or not it has ended since.
        has_failed: publications may not have reached all queues: the term writes no commit marker.
    """

    sequencer: Sequencer
    in_flight: InFlight
    unacked: UnackedArrivals
    orderly_end: OrderlyEnd

    def __init__(
        self,
        state: LeaderState,
        connection: ConnectionLease,
        shared: SharedConnection,
        clock: Callable[[], int] = now_ms,
        made_again: Callable[[BrokerError], Awaitable[None]] = _at_once,
        looked: Callable[[], Awaitable[None]] = _looked_already,
    ) -> None:
        self.name = state.entity.path
        self.meters = state.meters
        self.waits = state.waits
        self.is_ready = False
        self.on_consuming: Callable[[], None] = _nothing
        self.on_leading: Callable[[], None] = _nothing
        self.on_refused: Callable[[PublishRefused], None] | None = None
        self._term = os.urandom(16)
        self._state = state
        self.connection = connection
        self._shared = shared
        self._boot = shared.boot
        self._clock = clock
        self._made_again = made_again
        self._search = TargetSearch(self, looked)
        self._transfers = TransferQueue(self, state.companion.transfers)
        self._deferred = DeferredQueues(self)
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.elected = asyncio.Event()
        self._arrivals = ArrivalBuffer(state.prefetch)
        self._token = OwnershipToken(self.name, self._term)
        self._buckets = Buckets(self, connection, clock)
        self._publishing: Channel | None = None
        self._consuming: Channel | None = None
        self._snapshots: Snapshots | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._segments: Segments | None = None
        self._large: LargeArrival | None = None
        self._has_history = False
        self._inherited = Inherited(state.returning, self._loop.time)
        self._is_pump_due = False
        self.over: TermOver | None = None
        self.may_publish = False
        self.has_begun = False
        self.has_failed = False

    def __repr__(self) -> str:
        now = "leading" if self.is_ready else "ended" if self._ended.done() else "waiting"
        return f"<Leader of {self.name!r} [{now}, {len(self._arrivals)} arrived]>"

    def _note_other(self) -> None:
        if not self.elected.is_set() and not self._ended.done():
            self._state.leaderless_ms = None

    async def run(self) -> None:
        """Run the term until `stop`; raises the error that ends it otherwise."""
        self._state.note_leaderless(self._clock())
        main = asyncio.create_task(self._main(), name=f"sequencer {self.name}")
        try:
            await asyncio.wait((main, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                await main
            await self._ended
        except BrokerError as error:
            self.is_ready = self.meters.is_active = False
            await _first(self._made_again(error), self._stopping.wait(), within_s=KEPT_S)
            raise
        finally:
            self.is_ready = self.meters.is_active = False
            # Shielded: a cancel must not leave a channel open, or the inbox has a dead consumer.
            self._ending = asyncio.create_task(self._end(main), name=f"end of {self.name}")
            await asyncio.shield(self._ending)

    async def _end(self, main: asyncio.Task[None]) -> None:
        """Let publications be confirmed, and close the channels, which gives the inbox up."""

        async def overdue() -> None:
            if not self.has_failed:
                await self._stopping.wait()
            await asyncio.sleep(STOP_S)

        if self.has_begun:
            await self._state.companion.end(self.name)
        if self.elected.is_set():
            self._state.note_leaderless(self._clock())
        tasks = (main, *self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._publishing is not None:
            # What is confirmed now need not be published again by the next term: see `orderly_end`.
            self.orderly_end.pause()
            beside_s = BESIDE_S if self._stopping.is_set() else None
            await _first(self.orderly_end.settle(beside_s=beside_s), overdue())
            self.may_publish = False
            self.in_flight.close()
        await self._buckets.close()
        for channel in (self._publishing, self._consuming):
            if channel is not None:
                channel.on_closed = None
                await channel.close()
        self._ended.cancel()

    async def stop(self) -> None:
        """Carry out no more arrivals, wait for the publications' confirms, and end the term."""
        self._stopping.set()
        was_ready, self.is_ready = self.is_ready, False
        if was_ready:
            self.orderly_end.pause()
            await _first(self.orderly_end.settle(beside_s=BESIDE_S), within_s=STOP_S)
        if not self._ended.done():
            self._ended.set_result(None)

    def leave(self, why: str) -> None:
        """Hand the inbox over to another bridge, or to another term of this one.

        A takeover under way is finished first. The term then gives no more numbers, and ends when
        RabbitMQ has confirmed all that it has published. While that takes too long, it leads on.
        """
        self.over = self.over or TermOver(text=why)
        if not self.elected.is_set():
            self.fail(self.over)
        elif self.is_ready:
            self.orderly_end.begin(self.over)

    def fail(self, error: BaseException) -> None:
        """End this term with an error."""
        self.is_ready = False
        if not self._ended.done():
            self._ended.set_exception(error)
            # Marks the error as retrieved, for the task that runs this term may be gone.
            self._ended.exception()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start work as a task; its failure ends this term, and the term's end cancels it."""

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.fail(error)

        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)
        return task

    @property
    def entity(self) -> SendEntity:
        """The entity's present definition."""
        return self._state.entity

    @property
    def takes(self) -> bool:
        """Whether it gives numbers now: it leads, and does not wait for confirms to hand over."""
        return self.is_ready and not self.orderly_end.is_pausing

    @property
    def is_held(self) -> bool:
        """Whether a migration holds the entity: all but what it imports waits."""
        return bool(self._state.entity.held)

    @property
    def may_have_more(self) -> bool:
        """Whether arrivals may wait in the inbox: as many are unacked here as the prefetch."""
        inbox = self._consuming
        return (
            self.is_ready
            and inbox is not None
            and inbox.consumers.outstanding >= self._arrivals.prefetch
        )

    async def count_ready(self) -> None:
        """Update the meter of arrivals that wait in RabbitMQ, beyond those at hand.

        While RabbitMQ does not answer (an alarm) the meter keeps its last count.
        """
        if self.connection.is_blocked:
            return
        with contextlib.suppress(BrokerError), self.connection.channel_soon() as channel:
            self.meters.ready = (await queue_state(channel, names.inbox(self.name))).messages

    def submit(
        self,
        publications: Sequence[Publication],
        *,
        acks: Acks = (),
        then: Callable[[], None] | None = None,
        site: str,
    ) -> None:
        """Publish the sequencer's publications; when confirmed, ack, and call `then`."""
        self.in_flight.submit(self.sequencer, publications, acks=acks, then=then, site=site)

    async def write(self, *entries: Publication) -> None:
        """Publish entries of the journal and wait until they are confirmed."""
        confirmed = asyncio.Event()
        self.submit(entries, then=confirmed.set, site="sequencer.journal")
        # When the publish fails the term ends, and the waiting task is cancelled.
        await confirmed.wait()

    async def _write_segment(self, publication: Publication, then: Callable[[], None]) -> None:
        """Publish a segment of the history, whose stream the first segment makes."""
        if not self._has_history:
            await await_made(self, parts.history(self.name), "the history is being made")
            self._has_history = True
        self.submit((publication,), then=then, site="sequencer.journal")

    async def _main(self) -> None:
        def note_left_out() -> None:
            memory = self.sequencer.memory
            if memory.left_out and self._snapshots is not None:
                note = self.sequencer.journal.note_left_out(memory)
                self.submit((note,), site="sequencer.journal")

        self._publishing = publishing = await self.connection.channel()
        active = {} if isinstance(self.entity, Topic) else queues_by_key(self.entity)
        self.in_flight = InFlight(
            publishing,
            active_queues=active,
            waits=self.waits,
            entity=self.name,
            on_failed=self._on_failed,
            on_confirmed=self.go_on,
            on_answer=self._shared.answer,
            # One dead subscription or shard must not hold up other entities.
            beyond=BEYOND if len(active) == 1 else 0,
        )
        self.unacked = UnackedArrivals(partial(self.in_flight.ack, site="sequencer.number"))
        self.orderly_end = OrderlyEnd(
            self.name,
            self.in_flight,
            marker=commit_marker(self.entity, self._term, self._boot),
            may_mark=lambda: self.may_publish and not self.has_failed,
            note=note_left_out,
            waits=self.waits,
            start=self.start,
            on_over=self.fail,
            on_leading_on=self.go_on,
        )
        publishing.on_closed = self.fail
        if active:
            await publishing.barrier(active.values())
        await publishing.publisher.confirm_select()
        await take_address(publishing)
        await self.in_flight.move(self._token.publish(), site=SITE)
        self._consuming = consuming = await self.connection.channel()
        consuming.on_closed = self.fail
        await consuming.consumers.qos(self._arrivals.prefetch)
        inbox = names.inbox(self.name)

        def on_cancel(tag: str) -> None:
            self.fail(NotFound(404, f"the inbox of {self.name!r} was deleted"))

        await consuming.consumers.consume(inbox, self._on_delivery, on_cancel=on_cancel)
        self.on_consuming()
        # RabbitMQ elects this consumer within the time, or another process is the leader.
        self._loop.call_later(ELECTED_S, self._note_other)
        await self.elected.wait()
        elected_s = self._loop.time()
        self._state.note_leaderless(self._clock())
        with self.waits.begin(self.name, "the new leader reads the journal") as wait:
            await self._take_over(publishing, wait)
        if self._ended.done():
            return
        self._state.leaderless_ms = None
        self.meters.takeover_s = self._loop.time() - elected_s
        self.meters.terms += 1
        self.is_ready = self.meters.is_active = self.has_begun = True
        self._state.companion.begin(self.name)
        self._transfers.begin()
        self.on_leading()
        self._buckets.messages.fire()
        self._pump()

    async def _take_over(self, publishing: Channel, wait: Wait) -> None:
        """Restore the last sequencer's memory, and publish again what it left unconfirmed."""
        state = self._state
        replay = await read_journal(
            state,
            self.connection,
            self.in_flight,
            term=self._term,
            boot=self._boot,
        )
        for error in replay.unreadable:
            self.note_poison("journal", names.journal(self.name), error)
        before = state.sequencer
        self.sequencer, left = take_over(state, replay)
        if state.entity.requires_duplicate_detection and self.sequencer is not before:
            wait.reason = "the new leader reads the history of accepted messages"
            await self._learn_history()
        if self.sequencer is not before:
            state.begin_routes(self.sequencer, self._clock())
        self.in_flight.keep(left)
        state.begin(self.sequencer, self._term, self.in_flight.open)
        self.may_publish = True
        if state.entity.requires_duplicate_detection:
            self._segments = Segments(
                self.sequencer,
                self.in_flight,
                lambda publication, then: self.start(self._write_segment(publication, then)),
            )
        wait.reason = "the new leader declares the queues of scheduled messages"
        await self._buckets.declare()
        wait.reason = "RabbitMQ has not confirmed what the new leader published"
        self._publish_again(self.in_flight.release())
        # The snapshot implies that all earlier publications have reached their queues.
        await self.in_flight.wait_confirmed()
        if state.again_since_ms is not None:
            wait.reason = "a route to its queues is made again"
            await self._made_again(TermOver(text=wait.reason))
        await publish_again(self, state, self.connection, self._clock())
        self._snapshots = Snapshots(self.sequencer, self._term, self._boot, self._loop.time)
        self._write_snapshot(self._snapshots)
        await self.in_flight.wait_confirmed()
        self._buckets.begin()
        self.start(self._forget_inherited(self._clock()))

    async def _learn_history(self) -> None:
        """Read the messages that earlier terms accepted, for duplicate detection.

        A sequencer that goes on in the same process knows them already. Without a stream there is
        no segment yet: the journal has all that was accepted.
        """
        self._has_history = await is_there(self.connection, names.history(self.name))
        if not self._has_history:
            return
        unreadable = await read_history(
            self._state.entity,
            self.connection,
            self.in_flight,
            self.sequencer.memory.history,
            term=self._term,
            now_ms=self._clock(),
        )
        for error in unreadable:
            self.note_poison("history", names.history(self.name), error)

    def _publish_again(self, unconfirmed: Sequence[Unconfirmed]) -> None:
        """Publish the unconfirmed submissions of an earlier term of this process again."""
        for one in unconfirmed:
            native = one.native
            self.sequencer.journal.entries += len(one.publications)
            self.in_flight.submit(
                self.sequencer,
                one.publications,
                answer=one.answer,
                native=native,
                then=None if native is None else partial(self._inherited.await_return, native),
                site="sequencer.again",
            )

    def _on_delivery(self, delivery: Delivery) -> None:
        self._arrivals.add(delivery)
        self.elected.set()
        if self._arrivals.is_overfull and not self.is_ready:
            self._mind_prefetch()
        self.go_on()

    def go_on(self) -> None:
        """Carry out waiting arrivals, if there is room, at the end of this turn of the loop."""
        if self.is_ready and not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self._pump)

    def _on_failed(self, error: BrokerError) -> None:
        if not isinstance(error, AckLost):  # AckLost: the publications were confirmed
            self.has_failed = True
        if isinstance(error, PublishRefused) and self.on_refused is not None and self.may_publish:
            self.is_ready = False
            self.on_refused(error)
        else:
            self.fail(error)

    def _pump(self) -> None:
        """Carry out arrivals and due messages while there is room; then update the meters."""
        self._is_pump_due = False
        try:
            if self._buckets.messages.has_due:
                self._buckets.messages.fire()
            self._carry_out_all()
            if not self._arrivals.was_passed_over:
                self._inherited.look(has_token=self._token.has_own_come)
            self._token.pass_on(self.in_flight)
            if self._segments is not None and self.takes:
                self._segments.write_due()
            self._mind_snapshot()
            self._mind_prefetch()
        except Exception as error:
            self.fail(error)
        self.meters.at_hand, self.meters.in_flight = len(self._arrivals), self.in_flight.count
        self.meters.look(self.sequencer)

    def _carry_out_all(self) -> None:
        arrivals = self._arrivals
        entity, is_held = self._state.entity, self.is_held
        detects_duplicates = entity.requires_duplicate_detection
        folds_keys = entity.enable_partitioning and entity.folds_session_ids
        scheduled = self._buckets.messages
        large_until_s = 0.0
        if not is_held:
            arrivals.bring_back()
        while (
            arrivals.has_next
            and self.takes
            and not self._search.is_on
            and not self._deferred.is_on
            and self.in_flight.has_room
            and scheduled.has_room
        ):
            delivery = arrivals.next()
            if self._large is None:
                self._large = large_arrival(delivery, folds_keys=folds_keys)
            if self._large is not None:
                if is_held and self._large.unacked is None:
                    self._large = None
                    arrivals.set_aside()
                    continue
                if not large_until_s:
                    large_until_s = self._loop.time() + LARGE_S
                elif self._loop.time() >= large_until_s:
                    self.go_on()
                    return
                self._carry_out_step(self._large)
                continue
            command = arrival.read(
                delivery.properties,
                delivery.body,
                detects_duplicates=detects_duplicates,
                folds_keys=folds_keys,
                comes_again=delivery.redelivered,
            )
            if is_held and not isinstance(command, _WHILE_HELD):
                arrivals.set_aside()
                continue
            if isinstance(command, TransactionCommand):
                if self._transfers.must_wait(command):
                    return
            elif self._search.must_wait(command) or self._deferred.must_wait(command):
                return
            if type(command) is arrival.TokenArrival:
                self._token.take(delivery, command.term, self.in_flight)
            else:
                self._carry_out(delivery, command)
            arrivals.done()

    def _carry_out_step(self, large: LargeArrival) -> None:
        """Carry out a step of an arrival with many messages: check some, or number a part."""
        command = large.step()
        if command is None:
            return
        if self._search.must_wait(command):
            large.put_back(command)
            return
        if type(command) is arrival.RefusedItem:
            self._large = None
            self._carry_out(large.delivery, command)
            self._arrivals.done()
            return
        if large.unacked is None:
            large.unacked = self.unacked.add(large.delivery, self.sequencer.journal.entries)
            large.unacked.left = 1  # the rest of the envelope
        self._number_or_refuse(large.delivery, command, large.unacked)
        if large.is_over:
            self._large = None
            self.unacked.count_out(large.unacked)
            self._inherited.count()
            self._arrivals.done()

    def _carry_out(self, delivery: Delivery, command: Command | TransactionCommand) -> None:
        """Carry out one arrival; if it needs a bucket first, when that is made."""
        self._inherited.count()
        if isinstance(command, TransactionCommand):
            self._number_or_refuse(delivery, command)
            return
        native = _native_in(command)
        if native is not None and self._inherited.has_returned(native):
            self.in_flight.ack(delivery, site="sequencer.number")
            return
        where = self.sequencer.missing_bucket(command, self._clock())
        if native is None or native.scheduled_ms is None or where is None:
            self._number_or_refuse(delivery, command)
        else:
            _await_bucket(self, delivery, command, where, native.scheduled_ms)

    def _number_or_refuse(
        self,
        delivery: Delivery,
        command: Command | TransactionCommand,
        unacked: UnackedArrival | None = None,
    ) -> None:
        """Give an arrival its numbers; on an error dead-letter it, of an envelope what fails.

        Args:
            unacked: the arrival, if the command is a part of it.
        """
        if type(command) is arrival.RefusedItem:
            self.note_poison("inbox", names.inbox(self.name), command.description)
        elif type(command) is SendCommand:
            for _, description in command.refused:
                self.note_poison("inbox", names.inbox(self.name), description)
        is_numbered = not isinstance(command, TransactionCommand)
        apply: Apply = Sequencer.apply if is_numbered else apply_transaction
        try:
            self._number(delivery, command, apply, unacked)
        except BrokerError:
            raise
        except Exception as error:
            if type(command) is arrival.RefusedItem:
                raise
            self.note_poison("inbox", names.inbox(self.name), error)
            if isinstance(command, TransactionCommand):
                _answer_failed(self, delivery, command, error)
            elif unacked is not None or is_divisible(command):
                self._number(delivery, command, apply_each, unacked)
            else:
                self._number(delivery, arrival.unreadable(delivery.body, error))

    def note_poison(self, place: str, name: str, error: Exception | str) -> None:
        """Take note of input that could not be handled."""
        self._state.poison.note(place, name, error)

    def _number(
        self,
        delivery: Delivery,
        command: Command | TransactionCommand,
        apply: Apply = Sequencer.apply,
        unacked: UnackedArrival | None = None,
    ) -> None:
        if not _is_rest(command):
            self._token.arrivals += 1
            self.meters.arrivals += 1
        sequencer = self.sequencer
        first_entry = sequencer.journal.entries
        publications, answer, unplaced, goes_on = apply(sequencer, command, self._clock())
        acks: Acks = ((delivery.channel, delivery.tag),)
        then: Callable[[], None] | None = None
        if (unplaced or goes_on) and unacked is None:
            unacked = self.unacked.add(delivery, first_entry)
        if unacked is not None:
            acks = ()
            if goes_on is not None:
                unacked.left = 1
                self.in_flight.holds += 1
                then = partial(_rest, self, delivery, goes_on, unacked)
            elif unplaced:
                then = self._buckets.messages.await_stored(unacked, unplaced)
            elif publications:
                unacked.left += 1
                then = partial(self.unacked.count_out, unacked)
        self.in_flight.submit(
            sequencer,
            publications,
            acks=acks,
            answer=answer,
            # When the journal alone has a message, its arrival must come again.
            native=None if unplaced else _native_in(command),
            then=then,
            site="sequencer.number",
        )

    def _write_snapshot(self, snapshots: Snapshots) -> None:
        first_entry = self.in_flight.first_entry(self.sequencer.journal.entries)
        waiting = self.unacked.first_entry
        if waiting is not None:
            first_entry = min(first_entry, waiting)
        self.submit(snapshots.take(first_entry), site="sequencer.journal")

    def _mind_snapshot(self) -> None:
        if not self.takes or self._snapshots is None:
            return
        if self._snapshots.is_due:
            self._write_snapshot(self._snapshots)

    async def _forget_inherited(self, since_ms: int) -> None:
        """Forget the inherited memory, when nothing of earlier terms can come again.

        All arrivals that they left unacked have come again, and their acks have surely reached
        RabbitMQ. So have all messages that were in open buckets when this term began.
        """
        await asyncio.sleep(RETURNING_S)
        while not self._inherited.is_over:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(FORGET_EVERY_S)
        if self.sequencer.memory.activated:
            await self._buckets.await_come(since_ms)
        self.sequencer.forget_inherited()
        self._state.returning.clear()
        self.go_on()  # a snapshot without the inherited memory is due

    def _mind_prefetch(self) -> None:
        """End the term in order when another prefetch is better, or `leave` has asked for that."""
        prefetch = self._arrivals.better_prefetch()
        if prefetch is not None:
            self._state.prefetch = prefetch
            self.over = self.over or TermOver(text=f"{prefetch} arrivals at once from now on")
        if self.over is None:
            return
        if self.is_ready:
            self.orderly_end.begin(self.over)
        elif not self.in_flight.open:  # in a takeover, which has given no number
            self.fail(self.over)


def _await_bucket(
    leader: Leader, delivery: Delivery, command: Command, where: BucketKey, due_ms: int
) -> None:
    """Give a native message its number when its bucket is made.

    When its time comes first, it needs no bucket; behind a hold it may need another one.
    """

    def number() -> None:
        needed = leader.sequencer.missing_bucket(command, leader._clock())
        if needed is None:
            leader._number_or_refuse(delivery, command)
        else:
            _await_bucket(leader, delivery, command, needed, due_ms)

    leader._buckets.messages.await_number(where, due_ms, number, len(delivery.body))


def _rest(leader: Leader, delivery: Delivery, command: Commit, unacked: UnackedArrival) -> None:
    """Carry out what waited until a command's first publications were confirmed."""
    leader.in_flight.holds -= 1
    try:
        leader._number(delivery, command, apply_transaction, unacked)
        leader.unacked.count_out(unacked)
    except Exception as error:
        leader.fail(error)


def _answer_failed(
    leader: Leader, delivery: Delivery, command: TransactionCommand, error: Exception
) -> None:
    """Tell the sender of what has failed; what was decided already becomes a dead letter."""

    def answer(sequencer: Sequencer, failed: TransactionCommand, now_ms: int) -> Applied:
        return answer_failed(sequencer, failed, error)

    try:
        leader._number(delivery, command, answer)
    except BrokerError:
        raise
    except Exception:
        leader._number(delivery, arrival.unreadable(delivery.body, error))


def _is_rest(command: Command | TransactionCommand) -> bool:
    """Whether the first part of the arrival was carried out before."""
    if type(command) is SendCommand:
        return command.first > 0
    return type(command) is Commit and command.is_decided


def _native_in(command: Command | TransactionCommand) -> Item | None:
    """Return the native message of a command, which has no identity; `None`: it has none."""
    return command.items[0] if type(command) is SendCommand and command.identity is None else None
