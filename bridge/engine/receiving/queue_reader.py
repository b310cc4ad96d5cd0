"""The reader of one RabbitMQ queue: it fetches messages for the receivers of this process.

A delivered message is in exactly one place: with its receiver (locked, or settled at once),
buffered for the next receiver, or leaving (sent back to be numbered, expired, failed too often).
A second copy of such a message waits, and shares its fate. A second copy of a settled message is
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.broker.failpoint import reach
from bridge.engine.clock import now_ms
from bridge.engine.ownership.services import Services
from bridge.engine.receiving.channel_pool import ChannelLimits, ChannelPool
from bridge.engine.receiving.consumers import Consumers
from bridge.engine.receiving.late_acks import LateAcks
from bridge.engine.receiving.ready_messages import ReadyMessages
from bridge.engine.receiving.turn import Turn, Wake
from bridge.engine.settlement.departure import Source
from bridge.engine.settlement.held_message import Copy, HeldMessage, read, unreadable
from bridge.machine.arrival import MALFORMED_MESSAGE
from bridge.machine.credit.effects import Deliver, Return, Withdrawn
from bridge.machine.credit.strategy import Strategy
from bridge.machine.deduplicator import CopyStatus, Deduplicator, Left
from bridge.machine.fate import Fate
from bridge.machine.settled import SettledMemory
from bridge.message.fate import failures_of, fate_of, is_stray, rules_of
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire.basic import Properties
from bridge.wire.record import Record

RETURNED = "engine.release.returned"

Leave = Callable[[Source, HeldMessage], None]


class QueueReader:
    """The reader of one RabbitMQ queue.

    Args:
        turn: collects work for the end of a loop turn.
        settled: the memory of settled numbers.
        credit: the strategy, which decides what to fetch.
        channels: the limits of the queue's channels.
        deliver: called with the reader, the receiver's number and its message.

    Attributes:
        path: the entity and sub-queue.
        queue: the entity's definition.
        resource: the name of the RabbitMQ queue.
        is_dead_letter: whether the queue is a dead-letter sub-queue.
        ready: the messages that the queue has ready.
        is_deferred: `False`: its messages are available to all receivers.
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
            fate: None if fate is Fate.AVAILABLE else partial(departure.finish, fate=fate)
            for fate in Fate
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
            supervisor=services.supervisor,
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
        self._deleted = LateAcks(credit, self._consumers, self._ack_deleted)
        self._loop = asyncio.get_running_loop()
        self.ready = ReadyMessages(
            self.resource, services.connections, self._channels, self._consumers, credit
        )
        self._withdrawals: dict[int, asyncio.Future[None]] = {}
        self._is_closed = False
        self.queue, self._reader = queue, reader_of(queue)
        self._limit()

    def __repr__(self) -> str:
        return f"QueueReader({self.path}, {self._credit!r}, {self._deduplicator!r})"

    @property
    def buffered(self) -> int:
        """The count of messages that wait in this process for the next receiver."""
        return self._credit.buffered

    @property
    def held(self) -> int:
        """The count of messages that RabbitMQ has delivered and that are not settled."""
        return len(self._deduplicator)

    def holds(self, holding: HeldMessage) -> bool:
        """Return whether a message is still unacked on an open channel of this process."""
        return holding.channel.close_reason is None

    def ask(self, receiver: int, count: int) -> None:
        """Add credit for `count` more messages of a receiver."""
        self._credit.ask(receiver, count, self._loop.time())
        self._wake.soon()

    def withdraw(self, receiver: int) -> Awaitable[None]:
        """Take back a receiver's credit; when awaited, no message comes to it any more."""
        ticket = self._credit.withdraw(receiver)
        done = self._withdrawals[ticket] = self._loop.create_future()
        self._wake.soon()
        return done

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Ack a message; `point` is the failpoint behind the ack."""
        self._settling(holding.fetch)
        holding.channel.consumers.ack(holding.tag)
        reach(point, holding.channel)

    def delete(self, holding: HeldMessage) -> None:
        """Ack a received-and-deleted message once the ack fetches no unwanted message."""
        self._deleted.add(holding, self._loop.time())
        self._wake.soon()

    def give_back(self, holding: HeldMessage, point: str) -> None:
        """Return a message to its queue; this counts as a failed delivery on every version."""
        self._credit.returning()
        self._wake.soon()
        self._requeue(holding, point, is_counted=True)

    def release(self, holding: HeldMessage) -> None:
        """Make a message available again, uncounted; an expired one leaves the queue at once."""
        leave = self._reason_to_leave(holding)
        if leave is None:
            self.put_down(holding)
        else:
            self._leave(holding, leave)
            self._wake.soon()

    def put_down(self, holding: HeldMessage) -> None:
        """Offer a message to the next receiver; without one it returns to the queue later.

        Before 4.3 RabbitMQ counts every return as a failed delivery, so the message first waits in
        this process for a while.
        """
        self._credit.released(holding, self._loop.time())
        self._wake.soon()

    def departing(self, holding: HeldMessage) -> None:
        """Note that a message is about to be handed over to another queue, then acked."""
        self._settling(holding.fetch)

    def stayed(self, holding: HeldMessage) -> None:
        """Undo `departing` and `putting_back` after a failed hand-over."""
        self._deduplicator.expect_no_more(holding)
        if self.holds(holding):
            self._credit.stayed(holding.fetch)

    def putting_back(self, holding: HeldMessage, generation: int) -> None:
        """Note that a message is about to be published into its queue again."""
        self._deduplicator.expect(holding, generation)

    def left(self, holding: HeldMessage, how: Left) -> None:
        """Note that a message has left the queue; its second copies are dropped."""
        if how is not Left.REPLACED:
            self._record.left_active(holding.number)
        for copy in self._deduplicator.leave(holding, how):
            self._drop(copy)
        if how is Left.REPLACED:
            self._end_waits(holding)

    def update(self, queue: model.ReceiveEntity) -> None:
        """Take over a changed definition.

        With a new incarnation all held messages and locks are lost: numbers begin at 1 again, and a
        later settlement would publish an old message into the new entity.
        """
        if incarnation_of(queue) != incarnation_of(self.queue):
            self._channels.give_up()
            self._deduplicator.forget()
            self._record.failed.counts.clear()
        self.queue, self._reader = queue, reader_of(queue)
        self._limit()

    def close(self) -> Awaitable[None]:
        """Close the channels: RabbitMQ takes back locked and buffered messages.

        Released messages are returned first, in order.
        """
        self._is_closed = True
        self._act()
        self._wake.close()
        self._deduplicator.close()
        return self._consumers.close()

    def _limit(self) -> None:
        self._rules = rules_of(self.queue, is_dead_letter=self.is_dead_letter)
        self._credit.limit(self._rules.waiting_max)

    def _act(self) -> None:
        """Carry out the strategy's effects, which bring fetches in line with credit."""
        self._wake.is_due = False
        self._deleted.act(self._loop.time(), is_last=self._is_closed)
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
        self.ready.changed.set()

    def _watch(self) -> None:
        """Set the timer for work that is due without any event."""
        for due_s in (self._credit.due_s(), self._deleted.due_s):
            if due_s is not None and not self._is_closed:
                self._wake.at(due_s)

    def _on_channels_lost(self, channels: list[Channel]) -> None:
        """Forget all messages, which RabbitMQ has taken back; receivers keep their credit."""
        self._consumers.lose()
        self._credit.lost()
        self._deleted.clear()
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
        """Give a new message to a receiver, buffer it, or let it leave."""
        reason = self._reason_to_leave(holding)
        if reason is not None:
            self._credit.discarded(fetch)
            self._leave(holding, reason)
            self._wake.soon()
            return
        if self.is_dead_letter:
            holding.failures = failures_of(holding, self)
        elif holding.failures:
            self._record.failed.note(holding.number, holding.failures)
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
        """Give a receiver a buffered message, unless the message has expired meanwhile."""
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
        """Make a message that cannot be handled a dead letter with its body and the reason."""
        self._poison.note("dead-letter" if self.is_dead_letter else "active", self.resource, error)
        holding.record = Record(Properties(delivery_mode=2), holding.record.body)
        self.departing(holding)
        description = f"The message cannot be handled: {type(error).__name__}: {error}"
        self._departure.refuse(self, holding, MALFORMED_MESSAGE, description)

    def _requeue(self, holding: HeldMessage, point: str, *, is_counted: bool) -> None:
        """Return a message to its queue; before 4.3 every return counts as a failed delivery."""
        self._deduplicator.let_go(holding)
        self._send_back(holding, point, is_counted=is_counted)
        if is_counted and not self.is_dead_letter:
            self._record.failed.note(holding.number, holding.failures + 1)
        self._end_waits(holding, is_counted=is_counted)

    def _end_waits(self, holding: HeldMessage, *, is_counted: bool = False) -> None:
        """Send the second copies of a message, which need not wait any more, back to the queue."""
        for copy in self._deduplicator.take_free(holding):
            if copy.channel.close_reason is None:
                self._send_back(copy, RETURNED, is_counted=is_counted)

    def _send_back(self, returned: HeldMessage | Copy, point: str, *, is_counted: bool) -> None:
        channel = returned.channel
        self._settling(returned.fetch)
        if is_counted:
            channel.consumers.reject(returned.tag, True)
        else:
            channel.consumers.nack(returned.tag)
        self._channels.returned(channel)
        reach(point, channel)

    def _ack_deleted(self, holding: HeldMessage) -> None:
        if self.holds(holding):
            self.ack(holding, "engine.receive_and_delete.acked")

    def _drop(self, copy: Copy) -> None:
        if copy.channel.close_reason is None:
            self._settling(copy.fetch)
            self._departure.drop(copy)

    def _settling(self, fetch: int) -> None:
        """Close a fetch's window first if settling its message would fetch an unwanted one."""
        close = self._credit.settling(fetch, self._loop.time())
        if close is not None:
            self._consumers.end(close.fetch)
            self._wake.soon()
        elif not self._wake.is_due:
            self._watch()

    def _reason_to_leave(self, holding: HeldMessage) -> Leave | None:
        """Return how a message must leave that no receiver may have, or `None`."""
        return self._leaves[fate_of(holding, self._rules, now_ms())]
