"""The reader of one RabbitMQ queue: it fetches messages for the receivers of this process.

`machine.queue` decides what becomes of each message; the reader carries that out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.receiving_channel import ReceivingChannel
from bridge.broker.errors import BrokerError
from bridge.broker.failpoint import reach
from bridge.engine.clock import now_ms
from bridge.engine.ownership.services import Services
from bridge.engine.receiving.channel_pool import ChannelLimits, ChannelPool
from bridge.engine.receiving.ready_messages import ReadyMessages
from bridge.engine.receiving.turn import Turn, Wake
from bridge.engine.settlement.held_message import Copy, HeldMessage, read, unreadable
from bridge.machine.arrival import MALFORMED_MESSAGE
from bridge.machine.credit.effects import Deliver, Withdrawn
from bridge.machine.credit.strategy import Strategy
from bridge.machine.deduplicator import Left
from bridge.machine.queue.effects import Ack, End, Requeue, SendBack
from bridge.machine.queue.queue import QueueMachine
from bridge.machine.settled import SettledMemory
from bridge.message.fate import failures_of, is_stray, rules_of
from bridge.message.fetches import Fetches
from bridge.message.held import Held, copy_of
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire.basic import Properties
from bridge.wire.record import Record

END_S = 1.0
"""The longest wait for the ends of windows when the reader is closed."""

RETURNED = "engine.release.returned"


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
        self._departure = services.departure
        self._poison = services.departure.poison
        self._deliver = deliver
        self._locks = services.locks
        rules = rules_of(queue, is_dead_letter=self.is_dead_letter)
        self._machine: QueueMachine[HeldMessage, Copy] = QueueMachine(
            credit, settled.numbers(), rules, copy_of
        )
        self._record = services.settlements.of(self.resource)
        self._record.known = self._machine.copies.settled
        self._channels = ChannelPool(
            self.resource,
            services.connections.route(self.resource),
            channels,
            supervisor=services.supervisor,
            on_lost=self._on_channels_lost,
            on_ready=self._wake.soon,
        )
        self._fetches = Fetches(
            self.resource,
            self._machine,
            take=self._take_channel,
            main=self._main_channel,
            free=self._free_channel,
            on_delivery=self._on_delivery,
            on_change=self._wake.soon,
        )
        self._loop = asyncio.get_running_loop()
        self.ready = ReadyMessages(
            self.resource, services.connections, self._channels, self._fetches, credit
        )
        self._withdrawals: dict[int, asyncio.Future[None]] = {}
        self._is_closed = False
        self.queue, self._reader = queue, reader_of(queue)

    def __repr__(self) -> str:
        return f"QueueReader({self.path}, {self._machine!r})"

    @property
    def buffered(self) -> int:
        """The count of messages that wait in this process for the next receiver."""
        return self._machine.credit.buffered

    @property
    def held(self) -> int:
        """The count of messages that RabbitMQ has delivered and that are not settled."""
        return len(self._machine)

    def holds(self, holding: HeldMessage) -> bool:
        """Return whether a message is still unacked on an open channel of this process."""
        return holding.channel.close_reason is None

    def ask(self, receiver: int, count: int) -> None:
        """Add credit for `count` more messages of a receiver."""
        self._machine.ask(receiver, count, self._loop.time())
        self._wake.soon()

    def withdraw(self, receiver: int) -> Awaitable[None]:
        """Take back a receiver's credit; when awaited, no message comes to it any more."""
        ticket = self._machine.withdraw(receiver)
        done = self._withdrawals[ticket] = self._loop.create_future()
        self._wake.soon()
        return done

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Ack a message; `point` is the failpoint behind the ack."""
        self.departing(holding)
        holding.channel.consumers.ack(holding.tag)
        reach(point, holding.channel)

    def delete(self, holding: HeldMessage) -> None:
        """Settle a received-and-deleted message: its ack waits if it fetches an unwanted one."""
        self._record.left_active(holding.number)
        self._machine.delete(holding, self._loop.time())
        self._carry_out()
        self._wake.soon()

    def give_back(self, holding: HeldMessage, point: str) -> None:
        """Return a message to its queue; this counts as a failed delivery on every version."""
        if not self.is_dead_letter:
            self._record.failed.note(holding.number, holding.failures + 1)
        self._machine.give_back(holding, self._loop.time())
        self._carry_out(point)
        self._wake.soon()

    def release(self, holding: HeldMessage) -> None:
        """Make a message available again, uncounted; an expired one leaves the queue at once."""
        self._machine.release(holding, self._loop.time(), now_ms())
        self._carry_out()
        self._wake.soon()

    def put_down(self, holding: HeldMessage) -> None:
        """Offer a message to the next receiver; without one it returns to the queue later.

        Before 4.3 RabbitMQ counts every return as a failed delivery, so the message first waits in
        this process for a while.
        """
        self._machine.put_down(holding, self._loop.time())
        self._wake.soon()

    def departing(self, holding: HeldMessage) -> None:
        """Note that a message is about to be handed over to another queue, then acked."""
        self._machine.settling(holding.fetch, self._loop.time())
        if self._machine.due:
            self._carry_out()
            self._wake.soon()
        elif not self._wake.is_due:
            self._watch()

    def stayed(self, holding: HeldMessage) -> None:
        """Undo `departing` and `putting_back` after a failed hand-over."""
        self._machine.stayed(holding, is_held=self.holds(holding))

    def putting_back(self, holding: HeldMessage, generation: int) -> None:
        """Note that a message is about to be published into its queue again."""
        self._machine.putting_back(holding, generation)

    def left(self, holding: HeldMessage, how: Left) -> None:
        """Note that a message has left the queue; its second copies are dropped."""
        if how is not Left.REPLACED:
            self._record.left_active(holding.number)
        self._machine.left(holding, how)
        if self._machine.due:
            self._carry_out()
            self._wake.soon()

    def update(self, queue: model.ReceiveEntity) -> None:
        """Take over a changed definition.

        With a new incarnation all held messages and locks are lost: numbers begin at 1 again, and a
        later settlement would publish an old message into the new entity.
        """
        if incarnation_of(queue) != incarnation_of(self.queue):
            self._channels.give_up()
            self._machine.forget()
            self._record.failed.counts.clear()
        self.queue, self._reader = queue, reader_of(queue)
        self._machine.follow(rules_of(queue, is_dead_letter=self.is_dead_letter))

    def close(self) -> Awaitable[None]:
        """Close the channels: RabbitMQ takes back locked and buffered messages.

        Released messages are returned first, in order.
        """
        self._is_closed = True
        self._act()
        self._wake.close()
        self._machine.close()
        return self._close_channels()

    async def _close_channels(self) -> None:
        """Close the channels, and all windows before when channels end singly.

        Otherwise a window could get the messages that another channel's end returns, and they would
        be counted twice.
        """
        if self._channels.has_own:
            for fetch in list(self._fetches.windows):
                self._fetches.end(fetch)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    while self._fetches.windows:
                        self.ready.changed.clear()
                        await self.ready.changed.wait()
        await self._channels.close()

    def refuse(self, holding: HeldMessage, error: Exception) -> None:
        """Make a message that cannot be handled a dead letter with its body and the reason."""
        self._poison.note("dead-letter" if self.is_dead_letter else "active", self.resource, error)
        holding.record = Record(Properties(delivery_mode=2), holding.record.body)
        self.departing(holding)
        description = f"The message cannot be handled: {type(error).__name__}: {error}"
        self._departure.refuse(self, holding, MALFORMED_MESSAGE, description)

    def _act(self) -> None:
        """Bring fetches in line with credit."""
        self._wake.is_due = False
        channels, machine = self._channels, self._machine
        can_fetch = channels.can_fetch and not self._is_closed
        is_last = self._is_closed
        at_ms = now_ms() if machine.credit.balance.buffer.count else 0
        machine.plan(self._loop.time(), at_ms, can_fetch=can_fetch, is_last=is_last)
        if machine.due:
            self._carry_out()
        if channels.main is None and machine.credit.balance.waiters.asked:
            channels.open_soon()
        self._watch()
        self.ready.changed.set()

    def _watch(self) -> None:
        """Set the timer for work that is due without any event."""
        machine = self._machine
        for due_s in (machine.credit.due_s(), machine.late.due_s):
            if due_s is not None and not self._is_closed:
                self._wake.at(due_s)

    def _on_channels_lost(self, channels: list[Channel]) -> None:
        """Forget all messages, which RabbitMQ has taken back; receivers keep their credit."""
        self._fetches.lose()
        self._machine.lose()
        for channel in channels:
            self._locks.lose_channel(channel)

    def _take_channel(self) -> ReceivingChannel:
        return ReceivingChannel(self._channels.take())

    def _main_channel(self) -> ReceivingChannel:
        assert self._channels.main is not None, "nothing is fetched without it"
        return ReceivingChannel(self._channels.main)

    def _free_channel(self, channel: ReceivingChannel) -> None:
        self._channels.retire(channel.channel)

    def _on_delivery(self, fetch: int, channel: ReceivingChannel, delivery: Delivery) -> None:
        machine = self._machine
        try:
            holding = read(delivery, fetch, can_expire=not self.is_dead_letter, reader=self._reader)
        except Exception as error:
            machine.discarded(fetch)
            self.refuse(unreadable(delivery, fetch), error)
            self._wake.soon()
            return
        receiver = None
        if is_stray(holding, self, self._active_exchange):
            machine.strayed(holding, self._loop.time())
        else:
            if self.is_dead_letter:
                holding.failures = failures_of(holding, self)
            receiver = machine.arrived(holding, self._loop.time(), now_ms())
        if machine.due:
            self._carry_out()
        else:
            if holding.failures and not self.is_dead_letter:
                self._record.failed.note(holding.number, holding.failures)
            if receiver is not None:
                self._deliver(self, receiver, holding)
        self._wake.soon()

    def _carry_out(self, point: str = RETURNED) -> None:
        """Carry out the machine's effects; `point` is the failpoint behind a message's return."""
        for effect in self._machine.take():
            if isinstance(effect, Deliver):
                self._deliver(self, effect.receiver, effect.message)
            elif isinstance(effect, Requeue):
                self._return(effect.held, point, is_counted=effect.is_counted)
            elif isinstance(effect, Withdrawn):
                done = self._withdrawals.pop(effect.ticket)
                if not done.done():
                    done.set_result(None)
            elif isinstance(effect, Ack | End | SendBack):
                self._end(effect)
            else:
                self._fetches.carry_out(effect)

    def _return(self, held: HeldMessage | Copy, point: str, *, is_counted: bool) -> None:
        """Return a message to its queue; before 4.3 every return counts as a failed delivery."""
        channel = held.channel
        if channel.close_reason is not None:
            return
        if is_counted:
            channel.consumers.reject(held.tag, True)
        else:
            channel.consumers.nack(held.tag)
        self._channels.returned(channel)
        reach(point if isinstance(held, Held) else RETURNED, channel)

    def _end(self, effect: Ack | End[HeldMessage] | SendBack[HeldMessage]) -> None:
        """Let a message leave that no receiver may have, or that its receiver has deleted."""
        if isinstance(effect, Ack):
            held = effect.held
            if held.channel.close_reason is not None:
                return
            if effect.is_copy:
                self._departure.drop(held)
            else:
                held.channel.consumers.ack(held.tag)
                reach("engine.receive_and_delete.acked", held.channel)
            return
        self._wake.soon()
        try:
            if isinstance(effect, End):
                self._departure.finish(self, effect.message, effect.fate)
            else:
                self._departure.send_back(self, effect.message)
        except BrokerError:
            raise
        except Exception as error:
            self.refuse(effect.message, error)
