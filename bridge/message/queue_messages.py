"""The messages of one RabbitMQ queue that this process holds, for its receivers.

`machine.queue` decides what becomes of each message; this module carries that out, on channels
(`message.port`). What leaves the queue in another way than by an ack is handed over
(`message.departure`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from bridge.machine.credit.effects import Deliver, Withdrawn
from bridge.machine.credit.strategy import Strategy
from bridge.machine.inbox.arrival import MALFORMED_MESSAGE
from bridge.machine.queue.effects import Ack, End, Requeue, SendBack
from bridge.machine.queue.queue import QueueMachine
from bridge.machine.queue.second_copies import Left
from bridge.machine.queue.settled import SettledNumbers
from bridge.message.asked_deliveries import AskedDeliveries
from bridge.message.asking import Inquirer
from bridge.message.channels import AChannel, Channels
from bridge.message.departure import Departure
from bridge.message.end_rules import failures_of, is_stray, rules_of
from bridge.message.fetches import Fetches
from bridge.message.held import Held, HeldCopy, copy_of
from bridge.message.message import facts, unreadable
from bridge.message.port import Delivery
from bridge.message.subscriptions import reader_of
from bridge.message.wake import Wake
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire.basic import Properties
from bridge.wire.commits import NO_INQUIRY
from bridge.wire.inquiries import Told
from bridge.wire.record import Record

RETURNED = "engine.release.returned"


class QueueMessages(Generic[AChannel]):
    """The messages of one RabbitMQ queue; their owner for settling, and where they leave from.

    Args:
        credit: the strategy, which decides what to fetch.
        settled: the memory of settled numbers.
        departure: moves messages out of the queue.
        channels: the queue's channels.
        wake: calls `act`.
        now_s: returns the time of a monotonic clock.
        now_ms: returns UTC, ms.
        deliver: called with a receiver's number and its message.
        withdrawn: called with the ticket of a withdrawal that has ended.
        on_left: called with the number of each message that has left the queue.
        on_failed: called with a message's number and its failed deliveries.
        on_refused: called with the reason why a message cannot be handled.
        on_acted: called after each change of fetches and messages.
        reach: passes a failpoint.
        inquirer: asks leaders what transactions have settled; `None`: nobody is asked.

    Attributes:
        path: the entity and sub-queue.
        queue: the entity's definition.
        resource: the name of the RabbitMQ queue.
        is_dead_letter: whether the queue is a dead-letter sub-queue, that of transfers included.
        is_deferred: `False`: its messages are available to all receivers.
        machine: what decides about the messages.
        fetches: the fetches that have not ended.
        is_closed: no fetch begins any more.
    """

    is_deferred = False

    def __init__(
        self,
        queue: model.ReceiveEntity,
        sub_queue: SubQueue,
        *,
        credit: Strategy[Held[AChannel]],
        settled: SettledNumbers,
        departure: Departure,
        channels: Channels[AChannel],
        wake: Wake,
        now_s: Callable[[], float],
        now_ms: Callable[[], int],
        deliver: Callable[[int, Held[AChannel]], None],
        withdrawn: Callable[[int], None],
        on_left: Callable[[int], None],
        on_failed: Callable[[int, int], None],
        on_refused: Callable[[Exception], None],
        on_acted: Callable[[], object],
        reach: Callable[[str, AChannel], None],
        inquirer: Inquirer | None = None,
    ) -> None:
        self.queue = queue
        self.path = EntityPath(queue.path, sub_queue)
        self.is_dead_letter = sub_queue is not SubQueue.NONE
        self.resource = names.received(queue.path, sub_queue)
        self.is_closed = False
        self._active_exchange = names.active_exchange(queue.front)
        self._reader = reader_of(queue)
        rules = rules_of(queue, is_dead_letter=self.is_dead_letter)
        self.machine: QueueMachine[Held[AChannel], HeldCopy[AChannel]] = QueueMachine(
            credit, settled, rules, copy_of
        )
        self.fetches: Fetches[AChannel] = Fetches(
            self.resource,
            self.machine,
            take=channels.take,
            main=channels.shared,
            free=channels.retire,
            returned=channels.returned,
            on_delivery=self._on_delivery,
            on_change=wake.soon,
        )
        self._departure = departure
        self._channels = channels
        self._wake = wake
        self._now_s = now_s
        self._now_ms = now_ms
        self._deliver = deliver
        self._withdrawn = withdrawn
        self._on_left = on_left
        self._on_failed = on_failed
        self._on_refused = on_refused
        self._on_acted = on_acted
        self._reach = reach
        self._inquirer = inquirer
        self._asked: AskedDeliveries[AChannel] | None = None
        self._ask_if_transactional()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path}, {self.machine!r})"

    @property
    def buffered(self) -> int:
        """The count of messages that wait in this process for the next receiver."""
        return self.machine.credit.buffered

    @property
    def held(self) -> int:
        """The count of messages that RabbitMQ has delivered and that are not settled."""
        return len(self.machine) + (0 if self._asked is None else len(self._asked))

    def follow(self, queue: model.ReceiveEntity) -> bool:
        """Take over a changed definition; return whether the entity was created anew.

        Its numbers begin at 1 again then.
        """
        is_new = incarnation_of(queue) != incarnation_of(self.queue)
        if is_new:
            self.machine.forget()
            if self._asked is not None:
                self._asked.lose()
                self._asked = None
        self.queue, self._reader = queue, reader_of(queue)
        self.machine.follow(rules_of(queue, is_dead_letter=self.is_dead_letter))
        self._ask_if_transactional()
        return is_new

    def _ask_if_transactional(self) -> None:
        """Ask for what comes again from now on, once the entity has transactions."""
        if self.queue.transactional and self._inquirer is not None and self._asked is None:
            self._asked = AskedDeliveries(
                self, self._inquirer, self.fetches, self._on_delivery, self._decided, self._wake
            )

    def lose(self) -> None:
        """Forget all messages, which RabbitMQ has taken back; receivers keep their credit."""
        if self._asked is not None:
            self._asked.lose()
        self.fetches.lose()
        self.machine.lose()

    # Receivers.

    def ask(self, receiver: int, count: int) -> None:
        """Add credit for `count` more messages of a receiver."""
        self.machine.ask(receiver, count, self._now_s())
        self._wake.soon()

    # The interface for settling.

    def holds(self, held: Held[AChannel]) -> bool:
        """Return whether a message is still unacked on an open channel of this process."""
        return not held.channel.is_closed

    def ack(self, held: Held[AChannel], point: str) -> None:
        """Ack a message; `point` is the failpoint behind the ack."""
        self.departing(held)
        held.channel.ack(held.tag)
        self._reach(point, held.channel)

    def delete(self, held: Held[AChannel]) -> None:
        """Settle a received-and-deleted message: its ack waits if it fetches an unwanted one."""
        self._on_left(held.number)
        self.machine.delete(held, self._now_s())
        self._carry_out()
        self._wake.soon()

    def give_back(self, held: Held[AChannel], point: str) -> None:
        """Return a message to its queue; this counts as a failed delivery on every version."""
        if not self.is_dead_letter:
            self._on_failed(held.number, held.failures + 1)
        self.machine.give_back(held, self._now_s())
        self._carry_out(point)
        self._wake.soon()

    def release(self, held: Held[AChannel]) -> None:
        """Make a message available again, uncounted; an expired one leaves the queue at once."""
        self.machine.release(held, self._now_s(), self._now_ms())
        self._carry_out()
        self._wake.soon()

    def put_down(self, held: Held[AChannel]) -> None:
        """Offer a message to the next receiver; without one it returns to the queue later.

        Before 4.3 RabbitMQ counts every return as a failed delivery, so the message first waits in
        this process for a while.
        """
        self.machine.put_down(held, self._now_s())
        self._wake.soon()

    def departing(self, held: Held[AChannel]) -> None:
        """Note that a message is about to be handed over to another queue, then acked."""
        self.machine.settling(held.fetch, self._now_s())
        if self.machine.due:
            self._carry_out()
            self._wake.soon()
        elif not self._wake.is_due:
            self._watch()

    def stayed(self, held: Held[AChannel]) -> None:
        """Undo `departing` and `putting_back` after a failed hand-over."""
        self.machine.stayed(held, is_held=self.holds(held))

    def putting_back(self, held: Held[AChannel], generation: int) -> None:
        """Note that a message is about to be published into its queue again."""
        self.machine.putting_back(held, generation)

    def left(self, held: Held[AChannel], how: Left) -> None:
        """Note that a message has left the queue; its second copies are dropped."""
        if how is not Left.REPLACED:
            self._on_left(held.number)
        self.machine.left(held, how)
        if self.machine.due:
            self._carry_out()
            self._wake.soon()

    def refuse(self, held: Held[AChannel], error: Exception) -> None:
        """Make a message that cannot be handled a dead letter with its body and the reason."""
        self._on_refused(error)
        held.record = Record(Properties(delivery_mode=2), held.record.body)
        self.departing(held)
        description = f"The message cannot be handled: {type(error).__name__}: {error}"
        self._departure.refuse(self, held, MALFORMED_MESSAGE, description)

    # What the machine decides.

    def act(self) -> None:
        """Bring fetches in line with credit."""
        self._wake.is_due = False
        machine = self.machine
        can_fetch = self._channels.can_fetch and not self.is_closed
        at_ms = self._now_ms() if machine.credit.balance.buffer.count else 0
        machine.plan(self._now_s(), at_ms, can_fetch=can_fetch, is_last=self.is_closed)
        if machine.due:
            self._carry_out()
        if self._channels.main is None and machine.credit.balance.waiters.asked:
            self._channels.open_soon()
        self._watch()
        self._on_acted()

    def _watch(self) -> None:
        """Set the timer for work that is due without any event."""
        wake = self._wake
        due_s = self.machine.due_s()
        if due_s is not None and due_s < wake.due_s and not self.is_closed:
            wake.at(due_s)

    def _on_delivery(self, fetch: int, channel: AChannel, delivery: Delivery) -> None:
        if channel.is_closed:  # RabbitMQ has taken the message back, and delivers it again
            return
        machine = self.machine
        try:
            found = facts(
                delivery.properties,
                delivery.body,
                delivery.exchange,
                can_expire=not self.is_dead_letter,
                reader=self._reader,
            )
        except Exception as error:
            if self._asked is not None and self._asked.keeps_back(fetch, channel, delivery):
                return
            machine.discarded(fetch)
            bare = unreadable(delivery.body, delivery.exchange)
            self.refuse(Held(*bare, fetch, channel, delivery.tag), error)
            self._wake.soon()
            return
        held = Held(*found, fetch, channel, delivery.tag, NO_INQUIRY, delivery.redelivered)
        asked = self._asked
        if (
            asked is not None
            and (asked.waits or delivery.redelivered or held.failures != held.generation)
            and not asked.comes(held, delivery, is_stray(held, self, self._active_exchange))
        ):
            return
        receiver = None
        if is_stray(held, self, self._active_exchange):
            machine.strayed(held, self._now_s())
        else:
            if self.is_dead_letter:
                held.failures = failures_of(held, self)
            receiver = machine.arrived(held, self._now_s(), self._now_ms())
        if machine.due:
            self._carry_out()
        else:
            if held.failures and not self.is_dead_letter:
                self._on_failed(held.number, held.failures)
            if receiver is not None:
                self._deliver(receiver, held)
        self._wake.soon()

    def _decided(self, held: Held[AChannel], told: Told) -> None:
        """Carry out what a transaction has decided about a message that has come again."""
        asked = self._asked
        if asked is not None and not held.channel.is_closed:
            held.failures = failures_of(held, self)
            if self.machine.decided(held, self._now_s()):
                asked.inquirer.carry_out(self, held, told, asked)
            self._carry_out()

    def _carry_out(self, point: str = RETURNED) -> None:
        """Carry out the machine's effects; `point` is the failpoint behind a message's return."""
        for effect in self.machine.take():
            if isinstance(effect, Deliver):
                self._deliver(effect.receiver, effect.message)
            elif isinstance(effect, Requeue):
                self._return(effect.held, point, is_counted=effect.is_counted)
            elif isinstance(effect, Withdrawn):
                self._withdrawn(effect.ticket)
            elif isinstance(effect, Ack):
                self._drop(effect)
            elif isinstance(effect, End | SendBack):
                self._end(effect)
            else:
                self.fetches.carry_out(effect)

    def _return(self, held: Any, point: str, *, is_counted: bool) -> None:
        """Return a message to its queue; before 4.3 every return counts as a failed delivery."""
        channel: AChannel = held.channel
        if channel.is_closed:
            return
        if is_counted:
            channel.reject(held.tag)
        else:
            channel.nack(held.tag)
        self._channels.returned(channel)
        self._reach(point if isinstance(held, Held) else RETURNED, channel)

    def _drop(self, effect: Ack) -> None:
        """Ack a second copy, or a message that its receiver has deleted."""
        held = effect.held
        if held.channel.is_closed:
            return
        if effect.is_copy:
            self._departure.drop(held)
        else:
            held.channel.ack(held.tag)
            self._reach("engine.receive_and_delete.acked", held.channel)

    def _end(self, effect: End[Held[AChannel]] | SendBack[Held[AChannel]]) -> None:
        """Let a message leave that no receiver may have."""
        self._wake.soon()
        if effect.message.channel.is_closed:
            return
        try:
            if isinstance(effect, End):
                self._departure.finish(self, effect.message, effect.fate)
            else:
                self._departure.send_back(self, effect.message)
        except Exception as error:
            self.refuse(effect.message, error)
