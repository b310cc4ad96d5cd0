"""Where messages are received from: one queue of RabbitMQ, and this process's demand for it.

A message that has come is in exactly one place: with its asker (locked, or settled at once), kept
for the next asker, or leaving (sent back through the front door, expired, failed too often). A
second copy of one that is in such a place waits, and shares its fate; one of what is settled is
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.broker import failpoint
from bridge.broker.channel import Channel
from bridge.broker.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.engine.clock import now_ms
from bridge.engine.departure import Departure, Origin
from bridge.engine.fetching import Fetching
from bridge.engine.holding import EXHAUSTED_REASON, EXPIRED_REASON, Copy, Holding, read, unreadable
from bridge.engine.intake import Intake
from bridge.engine.lookout import Lookout
from bridge.engine.subscriptions import reader_of
from bridge.engine.turn import Turn
from bridge.machine.arrival import MALFORMED_MESSAGE
from bridge.machine.channels import Channels
from bridge.machine.deduplicator import Deduplicator, Left, Standing
from bridge.machine.demand import Close, Demand, Refill, Withdrawn
from bridge.machine.failures import CarriedFailures
from bridge.machine.rhythm import PAUSE_S, Rhythm
from bridge.machine.settled import SettledMemory
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire.basic import Properties
from bridge.wire.record import Record

STOCK_S = 0.05
"""So long after a message has come, what RabbitMQ said of the number behind it still counts."""

Leave = Callable[[Origin, Holding], None]


class Source:
    """One queue of RabbitMQ as this process receives from it.

    Args:
        turn: where what is to be done at the end of a loop turn is collected.
        settled: where what is settled is remembered.
        can_return: `basic.nack(requeue)` does not count as a failed delivery (RabbitMQ 4.3).
        is_clustered: RabbitMQ has several nodes, or may have.
        deliver: called with the source, the receiver's number and its message.
        on_lost: called when a channel, and all that was locked on it, is lost.

    Attributes:
        path: the entity and sub-queue that it is.
        queue: the entity's definition.
        resource: the RabbitMQ queue's name.
        lookout: sees who else receives from it, while messages are kept here.
        is_dead_letter: whether it is a dead-letter sub-queue.
    """

    def __init__(
        self,
        path: EntityPath,
        queue: model.ReceiveEntity,
        *,
        intake: Intake,
        turn: Turn,
        departure: Departure,
        settled: SettledMemory,
        can_return: bool,
        is_clustered: bool,
        deliver: Callable[[Source, int, Holding], None],
        on_lost: Callable[[Channel], None],
    ) -> None:
        self.path = path
        self.queue = queue
        self._reader = reader_of(queue)
        self.is_dead_letter = path.sub_queue is SubQueue.DEAD_LETTER
        name_of = names.dead_letter_queue if self.is_dead_letter else names.active_queue
        self.resource = name_of(queue.path)
        self._active_exchange = names.active_exchange(queue.front)
        self._turn = turn
        self._departure = departure
        self._poison = departure.poison
        self._can_return = can_return
        self._deliver = deliver
        self._on_lost = on_lost
        channels = Channels.of(can_return=can_return, is_clustered=is_clustered)
        self._demand: Demand[Holding] = Demand(
            is_cautious=not can_return,
            is_clustered=is_clustered and not can_return,
            channels=channels,
        )
        self._deduplicator: Deduplicator[Copy] = Deduplicator(settled.numbers())
        self._carried = CarriedFailures()
        self._fetching = Fetching(
            self.resource,
            route=intake.route(self.resource),
            demand=self._demand,
            channels=channels,
            on_delivery=self._on_delivery,
            on_lost=self._on_channel_lost,
            turn_soon=self._turn_soon,
        )
        self.lookout = Lookout(
            self.resource,
            demand=self._demand,
            fetching=self._fetching,
            on_others=self.give_up_kept,
        )
        self._loop = asyncio.get_running_loop()
        self._withdrawals: dict[int, asyncio.Future[None]] = {}
        self._is_turn_due = False
        self._kept_timer: asyncio.TimerHandle | None = None
        self._kept_timer_ms = 0
        self._rhythm = Rhythm(is_cautious=not can_return)
        self._is_clustered = is_clustered
        self._standing: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Source({self.path}, {self._demand!r}, {self._deduplicator!r})"

    @property
    def is_deferred(self) -> bool:
        """Its messages are available to receivers."""
        return False

    @property
    def kept(self) -> int:
        """Messages held for the next asker."""
        return self._demand.kept

    @property
    def held(self) -> int:
        """Messages that RabbitMQ has delivered and that are not settled."""
        return len(self._deduplicator)

    @property
    def asked(self) -> int:
        """Messages that receivers ask for and have not had."""
        return self._demand.asked

    def give_up_kept(self) -> None:
        """Return what is kept, for somebody else; RabbitMQ counts it as failed deliveries."""
        for holding in self._demand.give_up_kept():
            self.give_back(holding, "engine.release.returned")

    def holds(self, holding: Holding) -> bool:
        """Whether RabbitMQ still counts on this process to settle a message."""
        return holding.channel.close_reason is None

    def ask(self, receiver: int, count: int) -> None:
        """A receiver wants `count` more messages."""
        rhythm = self._rhythm
        now_s = self._loop.time()
        rhythm.asked(now_s, count)
        if now_s - self._fetching.last_arrival_s > STOCK_S:
            self._demand.forget_stock()
        if rhythm.is_steady != self._demand.is_standing and self._may_fetch_ahead:
            self._stand(rhythm.is_steady)
        self._demand.ask(receiver, count)
        self._turn_soon()

    def withdraw(self, receiver: int) -> Awaitable[None]:
        """Take back what a receiver asked for; nothing more comes for it when that is done."""
        self._end_rhythm()
        ticket = self._demand.withdraw(receiver)
        done = self._withdrawals[ticket] = self._loop.create_future()
        self._turn_soon()
        return done

    def ack(self, holding: Holding, point: str) -> None:
        """Settle a message for good."""
        self._before(holding.fetch)
        now_s = self._loop.time()
        self._rhythm.settled(now_s, holding.number, self._demand.asked)
        holding.channel.ack(holding.tag)
        self._pass(point, holding.channel)

    def give_back(self, holding: Holding, point: str) -> None:
        """Return a message to its queue; this counts as a failed delivery on every version."""
        self._end_rhythm()
        self._deduplicator.let_go(holding)
        self._requeue(holding, point, is_counted=True)
        self._end_waits(holding, is_counted=True)

    def release(self, holding: Holding) -> None:
        """Make a message available again without counting.

        Before 4.3 RabbitMQ counts whatever is returned, so the message stays here.
        """
        self._end_rhythm()
        if self._can_return:
            self._deduplicator.let_go(holding)
            self._requeue(holding, "engine.release.returned", is_counted=False)
            self._end_waits(holding)
        else:
            self._demand.keep(holding)
            self._watch_kept()
        self._turn_soon()

    def departing(self, holding: Holding) -> None:
        """A message is about to be handed over to another queue, and acked here then."""
        self._end_rhythm()
        self._before(holding.fetch)

    def stayed(self, holding: Holding) -> None:
        """A message that was about to be handed over was not."""
        self._deduplicator.expect_no_more(holding)
        if self.holds(holding):
            self._demand.stayed(holding.fetch)

    def putting_back(self, holding: Holding, generation: int) -> None:
        """A message is about to be published into its queue again."""
        self._deduplicator.expect(holding, generation)

    def left(self, holding: Holding, how: Left) -> None:
        """A message has left the queue, and its second copies with it."""
        for copy in self._deduplicator.leave(holding, how):
            self._drop(copy)
        self._end_waits(holding)

    def update(self, queue: model.ReceiveEntity) -> None:
        """Take over a changed definition; an entity that was made anew counts from 1."""
        if incarnation_of(queue) != incarnation_of(self.queue):
            self._deduplicator.forget()
        self.queue, self._reader = queue, reader_of(queue)

    def close(self) -> Awaitable[None]:
        """Close its channels; what is locked or kept goes back to its queue then."""
        for timer in (self._kept_timer, self._standing):
            if timer is not None:
                timer.cancel()
        return self._fetching.close()

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._turn.soon(self._act)

    def _act(self) -> None:
        """Hand out what is kept, and bring what is fetched in line with what is asked."""
        self._is_turn_due = False
        self._expire_kept()
        while (offer := self._demand.offer()) is not None:
            self._deliver(self, *offer)
        fetching = self._fetching
        for effect in self._demand.plan(can_fetch=fetching.can_fetch):
            if isinstance(effect, Withdrawn):
                done = self._withdrawals.pop(effect.ticket)
                if not done.done():
                    done.set_result(None)
            else:
                fetching.carry_out(effect)
        fetching.watch()

    def _on_channel_lost(self, channel: Channel) -> None:
        self._deduplicator.lose()
        self._on_lost(channel)

    @property
    def _may_fetch_ahead(self) -> bool:
        """Before 4.3, not in a cluster, nor what RabbitMQ dead-letters when it is returned once."""
        if self._can_return:
            return True
        return not self._is_clustered and (self.is_dead_letter or self.queue.max_delivery_count > 1)

    def _stand(self, is_standing: bool) -> None:
        """Begin to fetch ahead, or end it.

        What came so goes back, uncounted; before 4.3 it stays for the next asker.
        """
        self._demand.is_standing = is_standing
        if is_standing:
            if self._standing is None:
                self._standing = self._loop.call_later(PAUSE_S, self._watch_rhythm)
        elif self._can_return:
            for holding in self._demand.give_up_kept():
                self.release(holding)
        self._turn_soon()

    def _end_rhythm(self) -> None:
        self._rhythm.stop()
        if self._demand.is_standing:
            self._stand(False)

    def _watch_rhythm(self) -> None:
        """End the standing when nobody asks any more."""
        self._standing = None
        if self._rhythm.is_over(self._loop.time()):
            self._end_rhythm()
        elif self._demand.is_standing:
            self._standing = self._loop.call_later(PAUSE_S, self._watch_rhythm)

    def _on_delivery(self, fetch: int, delivery: Delivery) -> None:
        self._fetching.last_arrival_s = self._loop.time()
        try:
            holding = read(delivery, fetch, can_expire=not self.is_dead_letter, reader=self._reader)
        except Exception as error:
            self._refuse(fetch, unreadable(delivery, fetch), error)
            self._turn_soon()
            return
        if self._is_stray(holding):
            self._leave(fetch, holding, self._departure.send_back)
        elif (standing := self._deduplicator.standing(holding)) is not Standing.NEW:
            self._demand.discarded(fetch)
            copy = Copy(fetch, holding.channel, holding.tag)
            if standing is Standing.HELD:
                self._deduplicator.wait(holding, copy)
            else:
                self._drop(copy)
        else:
            self._deduplicator.hold(holding)
            reason = self._reason_to_leave(holding)
            if reason is not None:
                self._leave(fetch, holding, reason)
            else:
                if self.is_dead_letter and holding.exchange:
                    holding.failures = self._carried.failures_here(
                        holding.identity, holding.failures
                    )
                self._give(fetch, holding)
        self._turn_soon()

    def _leave(self, fetch: int, holding: Holding, leave: Leave) -> None:
        self._demand.discarded(fetch)
        self.departing(holding)
        try:
            leave(self, holding)
        except BrokerError:
            raise
        except Exception as error:
            self.refuse(holding, error)

    def _refuse(self, fetch: int, holding: Holding, error: Exception) -> None:
        self._demand.discarded(fetch)
        self.refuse(holding, error)

    def refuse(self, holding: Holding, error: Exception) -> None:
        """Have a message made a dead letter that cannot be handled: its body, and why."""
        self._poison.note("dead-letter" if self.is_dead_letter else "active", self.resource, error)
        holding.record = Record(Properties(delivery_mode=2), holding.record.body)
        self.departing(holding)
        description = f"The message cannot be handled: {type(error).__name__}: {error}"
        self._departure.refuse(self, holding, MALFORMED_MESSAGE, description)

    def _end_waits(self, holding: Holding, *, is_counted: bool = False) -> None:
        """Return the second copies of a message that wait for nothing any more."""
        for copy in self._deduplicator.take_free(holding):
            if copy.channel.close_reason is None:
                self._requeue(copy, "engine.release.returned", is_counted=is_counted)

    def _drop(self, copy: Copy) -> None:
        self._end_rhythm()
        if copy.channel.close_reason is None:
            self._before(copy.fetch)
            self._departure.drop(copy)

    def _requeue(self, returned: Holding | Copy, point: str, *, is_counted: bool) -> None:
        """Return a message to its queue; before 4.3 this counts as a failed delivery anyway."""
        channel = returned.channel
        self._before(returned.fetch)
        if is_counted:
            channel.reject(returned.tag, True)
        else:
            channel.nack(returned.tag, False, True)
        self._fetching.returned(channel)
        self._pass(point, channel)

    def _give(self, fetch: int, holding: Holding) -> None:
        """Give a message to whoever asks; what is kept goes first, by number."""
        if self._demand.is_behind(fetch):
            self._demand.discarded(fetch)
            self.release(holding)
            return
        if self._demand.kept:
            self._demand.discarded(fetch)
            self._demand.keep(holding)
            self._watch_kept()
            return
        receiver = self._demand.arrived(fetch)
        if receiver is not None:
            self._deliver(self, receiver, holding)
        elif self._demand.is_standing:
            self._demand.keep(holding)
            self._watch_kept()
        else:
            self.release(holding)

    def _reason_to_leave(self, holding: Holding) -> Leave | None:
        """Return what is to be done with a message that no receiver may have any more."""
        if holding.has_expired(now_ms()):
            return self._departure.expire
        if not self.is_dead_letter and holding.failures >= self.queue.max_delivery_count:
            return self._departure.exhaust
        return None

    def _is_stray(self, holding: Holding) -> bool:
        """Whether a message is to be sent back through the front door and numbered."""
        if self.is_dead_letter:
            return self._was_too_late(holding)
        return not self._has_come_through(holding)

    def _has_come_through(self, holding: Holding) -> bool:
        """Whether a message has been numbered, or was put back by an engine."""
        if holding.exchange == self._active_exchange:
            return holding.is_numbered
        return not holding.exchange and holding.is_numbered and holding.is_published_again

    def _was_too_late(self, holding: Holding) -> bool:
        """Whether RabbitMQ made a dead letter of what was still to be sent back and numbered."""
        reasons = (EXPIRED_REASON, EXHAUSTED_REASON)
        return not holding.is_numbered and holding.death_reason in reasons

    def _before(self, fetch: int) -> Close | Refill | None:
        """Close the window that an ack or reject of its message would refill in vain."""
        was_crowded = self._demand.is_crowded
        effect = self._demand.settling(fetch)
        if type(effect) is Close:
            self._fetching.end(effect.fetch)
            self._turn_soon()
        elif was_crowded:
            self._turn_soon()
        return effect

    def _pass(self, point: str, channel: Channel) -> None:
        if failpoint.IS_ARMED:
            channel.flush()
            failpoint.reach(point)

    def _watch_kept(self) -> None:
        """Wake when the first kept message expires."""
        next_ms = self._demand.next_expiry_ms()
        timer = self._kept_timer
        if next_ms is None or (timer is not None and self._kept_timer_ms <= next_ms):
            return
        if timer is not None:
            timer.cancel()
        self._kept_timer_ms = next_ms
        delay_s = max(next_ms - now_ms(), 0) / 1000
        self._kept_timer = self._loop.call_later(delay_s, self._on_kept_timer)

    def _on_kept_timer(self) -> None:
        self._kept_timer = None
        self._turn_soon()

    def _expire_kept(self) -> None:
        next_ms = self._demand.next_expiry_ms()
        if next_ms is None:
            return
        if next_ms <= now_ms():
            for holding in self._demand.expire(now_ms()):
                self.departing(holding)
                self._departure.expire(self, holding)
        self._watch_kept()
