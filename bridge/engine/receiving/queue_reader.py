"""A queue of RabbitMQ, as this process receives from it.

A message that has come is in exactly one place: with its receiver (locked, or settled at once),
buffered for the next one, or leaving (to the front exchange, expired, failed too often).
A second copy of one that is in such a place waits, and shares its fate; one of what is settled is
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.broker.failpoint import reach
from bridge.engine.clock import now_ms
from bridge.engine.ownership.services import Services
from bridge.engine.receiving.channel_pool import ChannelLimits, ChannelPool
from bridge.engine.receiving.consumers import Consumers
from bridge.engine.receiving.turn import Turn, Wake
from bridge.engine.settlement.departure import Source
from bridge.engine.settlement.held_message import Copy, HeldMessage, read, unreadable
from bridge.machine.arrival import MALFORMED_MESSAGE
from bridge.machine.credit.effects import Deliver, Return, Withdrawn
from bridge.machine.credit.strategy import Strategy
from bridge.machine.deduplicator import CopyStatus, Deduplicator, Left
from bridge.machine.settled import SettledMemory
from bridge.message.fate import Fate, fate_of, is_stray
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire.basic import Properties
from bridge.wire.record import Record

UNLIMITED = 1 << 31
"""So many failed deliveries dead-letter what is a dead letter already."""

RETURNED = "engine.release.returned"

Leave = Callable[[Source, HeldMessage], None]


class QueueReader:
    """One queue of RabbitMQ as this process receives from it.

    Args:
        turn: where what is to be done at the end of a loop turn is collected.
        settled: where what is settled is remembered.
        credit: decides what is fetched.
        channels: how many channels it may have.
        deliver: called with the reader, the receiver's number and its message.

    Attributes:
        path: the entity and sub-queue that it is.
        queue: the entity's definition.
        resource: the RabbitMQ queue's name.
        is_dead_letter: whether it is a dead-letter sub-queue.
        is_deferred: its messages are available to receivers.
    """

    is_deferred = False

    def __init__(
        self,
        path: EntityPath,
        queue: model.ReceiveEntity,
        *,
        services: Services,
        turn: Turn,
        settled: SettledMemory,
        credit: Strategy[HeldMessage],
        channels: ChannelLimits,
        deliver: Callable[[QueueReader, int, HeldMessage], None],
    ) -> None:
        self.path = path
        self.is_dead_letter = path.sub_queue is SubQueue.DEAD_LETTER
        name_of = names.dead_letter_queue if self.is_dead_letter else names.active_queue
        self.resource = name_of(queue.path)
        self._active_exchange = names.active_exchange(queue.front)
        self._wake = Wake(turn, self._act)
        self._departure = departure = services.departure
        self._poison = departure.poison
        self._leaves: dict[Fate, Leave | None] = {
            Fate.AVAILABLE: None,
            Fate.EXPIRED: departure.expire,
            Fate.DELIVERY_COUNT_EXCEEDED: departure.dead_letter_failed,
        }
        self._deliver = deliver
        self._locks = services.locks
        self._credit = credit
        self._deduplicator: Deduplicator[Copy] = Deduplicator(settled.numbers())
        self._record = services.settlements.of(self.resource)
        self._record.known = self._deduplicator.settled
        self._channels = ChannelPool(
            self.resource,
            services.connections.route(self.resource),
            channels,
            on_lost=self._on_channels_lost,
            on_ready=self._wake.soon,
        )
        self._consumers = Consumers(
            self.resource,
            channels=self._channels,
            credit=credit,
            on_delivery=self._on_delivery,
            on_change=self._wake.soon,
        )
        self._loop = asyncio.get_running_loop()
        self._withdrawals: dict[int, asyncio.Future[None]] = {}
        self._is_closed = False
        self.queue, self._reader = queue, reader_of(queue)
        self._limit()

    def __repr__(self) -> str:
        return f"QueueReader({self.path}, {self._credit!r}, {self._deduplicator!r})"

    @property
    def buffered(self) -> int:
        """Messages that wait here for the next receiver."""
        return self._credit.buffered

    @property
    def held(self) -> int:
        """Messages that RabbitMQ has delivered and that are not settled."""
        return len(self._deduplicator)

    def holds(self, holding: HeldMessage) -> bool:
        """Whether RabbitMQ still counts on this process to settle a message."""
        return holding.channel.close_reason is None

    def ask(self, receiver: int, count: int) -> None:
        """A receiver wants `count` more messages."""
        self._credit.ask(receiver, count, self._loop.time())
        self._wake.soon()

    def withdraw(self, receiver: int) -> Awaitable[None]:
        """Take back what a receiver asked for; nothing more comes for it when that is done."""
        ticket = self._credit.withdraw(receiver)
        done = self._withdrawals[ticket] = self._loop.create_future()
        self._wake.soon()
        return done

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Settle a message for good."""
        self._settling(holding.fetch)
        holding.channel.consumers.ack(holding.tag)
        reach(point, holding.channel)

    def give_back(self, holding: HeldMessage, point: str) -> None:
        """Return a message to its queue; this counts as a failed delivery on every version."""
        self._credit.returning()
        self._wake.soon()
        self._requeue(holding, point, is_counted=True)

    def release(self, holding: HeldMessage) -> None:
        """Make a message available again without counting.

        One that has expired leaves at once.
        """
        leave = self._reason_to_leave(holding)
        if leave is None:
            self.put_down(holding)
        else:
            self._leave(holding, leave)
            self._wake.soon()

    def put_down(self, holding: HeldMessage) -> None:
        """Let the next receiver have a message, or the queue at the end; nobody has had it.

        Before 4.3 RabbitMQ counts whatever is returned, so it waits here for a while.
        """
        self._credit.released(holding, self._loop.time())
        self._wake.soon()

    def departing(self, holding: HeldMessage) -> None:
        """A message is about to be handed over to another queue, and acked here then."""
        self._settling(holding.fetch)

    def stayed(self, holding: HeldMessage) -> None:
        """A message that was about to be handed over was not."""
        self._deduplicator.expect_no_more(holding)
        if self.holds(holding):
            self._credit.stayed(holding.fetch)

    def putting_back(self, holding: HeldMessage, generation: int) -> None:
        """A message is about to be published into its queue again."""
        self._deduplicator.expect(holding, generation)

    def left(self, holding: HeldMessage, how: Left) -> None:
        """A message has left the queue, and its second copies with it."""
        if how is not Left.REPLACED:
            self._record.left_active(holding.number)
        for copy in self._deduplicator.leave(holding, how):
            self._drop(copy)
        if how is Left.REPLACED:
            self._end_waits(holding)

    def update(self, queue: model.ReceiveEntity) -> None:
        """Take over a changed definition.

        An entity that was made anew counts from 1; what was held of the earlier one is lost with
        it, and its locks: settled later it would be published into the new one.
        """
        if incarnation_of(queue) != incarnation_of(self.queue):
            self._channels.give_up()
            self._deduplicator.forget()
        self.queue, self._reader = queue, reader_of(queue)
        self._limit()

    def close(self) -> Awaitable[None]:
        """Close its channels; what is locked or buffered goes back to its queue.

        What was released goes first, in order.
        """
        self._is_closed = True
        self._act()
        self._wake.close()
        self._deduplicator.close()
        return self._consumers.close()

    def _limit(self) -> None:
        # Being forwarded is no delivery.
        is_unlimited = self.is_dead_letter or target_of(self.queue)
        self._credit.limit(UNLIMITED if is_unlimited else self.queue.max_delivery_count)

    def _act(self) -> None:
        """Bring what is fetched in line with what is asked for."""
        self._wake.is_due = False
        channels = self._channels
        can_fetch = channels.can_fetch and not self._is_closed
        for effect in self._credit.plan(self._loop.time(), can_fetch=can_fetch):
            if isinstance(effect, Deliver):
                self._offer(effect.receiver, effect.message)
            elif isinstance(effect, Return):
                if self.holds(effect.message):
                    self._requeue(effect.message, RETURNED, is_counted=False)
            elif isinstance(effect, Withdrawn):
                done = self._withdrawals.pop(effect.ticket)
                if not done.done():
                    done.set_result(None)
            else:
                self._consumers.carry_out(effect)
        if channels.main is None and self._credit.balance.waiters.asked:
            channels.open_soon()
        self._watch()

    def _watch(self) -> None:
        """Wake when there is something to do though nothing happens."""
        due_s = self._credit.due_s()
        if due_s is None or self._is_closed:
            return
        self._wake.at(due_s)

    def _on_channels_lost(self, channels: list[Channel]) -> None:
        """RabbitMQ has taken everything back; who asked still asks."""
        self._consumers.lose()
        self._credit.lost()
        self._deduplicator.lose()
        for channel in channels:
            self._locks.lose_channel(channel)

    def _on_delivery(self, fetch: int, delivery: Delivery) -> None:
        try:
            holding = read(delivery, fetch, can_expire=not self.is_dead_letter, reader=self._reader)
        except Exception as error:
            self._credit.discarded(fetch)
            self.refuse(unreadable(delivery, fetch), error)
            self._wake.soon()
            return
        if is_stray(holding, self, self._active_exchange):
            self._credit.discarded(fetch)
            self._leave(holding, self._departure.send_back)
            self._wake.soon()
        elif (status := self._deduplicator.status_of(holding)) is not CopyStatus.NEW:
            self._credit.discarded(fetch)
            self._on_copy(holding, status)
            self._wake.soon()
        else:
            self._deduplicator.hold(holding)
            self._on_message(fetch, holding)

    def _on_message(self, fetch: int, holding: HeldMessage) -> None:
        """One that may go to a receiver has come."""
        reason = self._reason_to_leave(holding)
        if reason is not None:
            self._credit.discarded(fetch)
            self._leave(holding, reason)
            self._wake.soon()
            return
        if self.is_dead_letter:
            holding.failures = holding.died_after(self.queue.max_delivery_count)
        receiver = self._credit.arrived(fetch, holding, self._loop.time())
        if receiver is not None:
            self._deliver(self, receiver, holding)
        self._wake.soon()

    def _on_copy(self, holding: HeldMessage, status: CopyStatus) -> None:
        copy = Copy(holding.fetch, holding.channel, holding.tag)
        if status is CopyStatus.HELD:
            self._deduplicator.wait(holding, copy)
        else:
            self._drop(copy)

    def _offer(self, receiver: int, holding: HeldMessage) -> None:
        """Give a receiver what waited here, unless that has expired meanwhile."""
        reason = self._reason_to_leave(holding)
        if reason is None:
            self._deliver(self, receiver, holding)
        else:
            self._credit.balance.waiters.restore(receiver)
            self._leave(holding, reason)
            self._wake.soon()

    def _leave(self, holding: HeldMessage, leave: Leave) -> None:
        self.departing(holding)
        try:
            leave(self, holding)
        except BrokerError:
            raise
        except Exception as error:
            self.refuse(holding, error)

    def refuse(self, holding: HeldMessage, error: Exception) -> None:
        """Have a message made a dead letter that cannot be handled: its body, and why."""
        self._poison.note("dead-letter" if self.is_dead_letter else "active", self.resource, error)
        holding.record = Record(Properties(delivery_mode=2), holding.record.body)
        self.departing(holding)
        description = f"The message cannot be handled: {type(error).__name__}: {error}"
        self._departure.refuse(self, holding, MALFORMED_MESSAGE, description)

    def _requeue(self, holding: HeldMessage, point: str, *, is_counted: bool) -> None:
        """Return a message to its queue; before 4.3 this counts as a failed delivery anyway."""
        self._deduplicator.let_go(holding)
        self._send_back(holding, point, is_counted=is_counted)
        self._end_waits(holding, is_counted=is_counted)

    def _end_waits(self, holding: HeldMessage, *, is_counted: bool = False) -> None:
        """Return the second copies of a message that wait for nothing any more."""
        for copy in self._deduplicator.take_free(holding):
            if copy.channel.close_reason is None:
                self._send_back(copy, RETURNED, is_counted=is_counted)

    def _send_back(self, returned: HeldMessage | Copy, point: str, *, is_counted: bool) -> None:
        channel = returned.channel
        self._settling(returned.fetch)
        if is_counted:
            channel.consumers.reject(returned.tag, True)
        else:
            channel.consumers.nack(returned.tag, False, True)
        self._channels.returned(channel)
        reach(point, channel)

    def _drop(self, copy: Copy) -> None:
        if copy.channel.close_reason is None:
            self._settling(copy.fetch)
            self._departure.drop(copy)

    def _settling(self, fetch: int) -> None:
        """Close the window that an ack or return of its message would refill in vain."""
        close = self._credit.settling(fetch, self._loop.time())
        if close is not None:
            self._consumers.end(close.fetch)
            self._wake.soon()
        elif not self._wake.is_due:
            self._watch()

    def _reason_to_leave(self, holding: HeldMessage) -> Leave | None:
        """Return what is to be done with a message that no receiver may have any more."""
        return self._leaves[fate_of(holding, self, now_ms())]
