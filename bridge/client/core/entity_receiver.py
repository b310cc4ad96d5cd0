"""A client's receiving from one queue of RabbitMQ: fetches, locks, settlement.

All the application's receivers of the queue share one `EntityReceiver`, so a lock outlives its
receiver and ends with the client. The rules are those of a bridge: what becomes of each message
(`machine.queue`), ends of locks (`machine.locks`).
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.channels import Channels, way_of
from bridge.client.core.holding import Copy, HeldMessage
from bridge.client.core.locktable import LockTable
from bridge.client.core.place import QueuePlace
from bridge.client.core.publisher import Publisher
from bridge.client.core.pull import Begun, Pull
from bridge.client.core.settlements import Settlements
from bridge.client.core.settling import Settling
from bridge.client.core.wire import Answer, Channel, Delivery, Timer, Wire, succeed
from bridge.client.exceptions import ServiceBusAuthorizationError, ServiceBusError
from bridge.machine.credit.effects import Close, Deliver, Get, Look, Open, Withdrawn
from bridge.machine.deduplicator import Left
from bridge.machine.queue.effects import Ack, End, Requeue, SendBack
from bridge.machine.queue.queue import QueueMachine
from bridge.machine.settled import SettledMemory
from bridge.message import moves
from bridge.message.fate import failures_of, is_stray
from bridge.message.fetches import Fetches
from bridge.message.held import Held, copy_of
from bridge.message.message import facts, unreadable
from bridge.message.moves import Move
from bridge.model.name import SubQueue
from bridge.topology.description import Described

SETTLE_S = 1.0
"""Time without fetches after a failure: a quorum queue may deliver out of order for a moment then
(docs/rabbitmq-faults.md: order-after-kill)."""

REFUSALS = "ACCESS_REFUSED", "RESOURCE_LOCKED"
"""RabbitMQ's words for a user that may not receive: repeating the request is in vain."""


class EntityReceiver:
    """The client's messages of one queue.

    Args:
        wire: the receiving connection.
        publisher: on the publishing connection, which may be blocked while the receiving one is
            not.
        settled: the memory of settled messages.
        settlements: publishes settled numbers for peeks.

    Attributes:
        place: the queue.
        record: the queue's settled numbers for peeks.
    """

    def __init__(
        self,
        described: Described,
        sub_queue: SubQueue,
        *,
        wire: Wire,
        publisher: Publisher,
        settled: SettledMemory,
        settlements: Settlements,
    ) -> None:
        self.place = QueuePlace(described, sub_queue)
        self._wire = wire
        credit, limits = way_of(described)
        self._machine: QueueMachine[HeldMessage, Copy] = QueueMachine(
            credit, settled.numbers(), self.place.rules, copy_of
        )
        self._channels = Channels(wire, limits, self._on_lost, self._turn_soon)
        self._fetches = Fetches(
            self.place.resource,
            self._machine,
            take=self._channels.take,
            main=self._channels.main,
            free=self._channels.let_go,
            on_delivery=self._on_delivery,
            on_change=self._turn_soon,
        )
        self.record = settlements.of(self.place.resource, self._machine.copies.settled)
        self._settling = Settling(
            self.place,
            wire=wire,
            publisher=publisher,
            channels=self._channels,
            machine=self._machine,
            carry_out=self._carry_out,
            record=self.record,
        )
        self._locks = LockTable(wire, self._settling.give_back)
        self._pulls: dict[int, Pull[HeldMessage]] = {}
        self._withdrawals: dict[int, Pull[HeldMessage]] = {}
        self._last_pull = 0
        self._not_before_s = 0.0
        self._is_turn_due = False
        self._is_closed = False
        self._timer: Timer | None = None
        self._due_s: float | None = None
        self._follow(described)

    def __repr__(self) -> str:
        return f"EntityReceiver({self.place.resource}, {self._machine!r}, {len(self._locks)} locks)"

    @property
    def is_in_use(self) -> bool:
        """Whether a call waits here, or a lock is held."""
        return bool(self._pulls or len(self._locks))

    @property
    def held_count(self) -> int:
        """How many messages are held, unacked."""
        return len(self._machine)

    def update(self, described: Described) -> None:
        """Take over a changed definition.

        An entity of a new incarnation counts from 1. Locks stay: their messages may be of the new
        incarnation.
        """
        if described is self._described:
            return
        if self.place.update(described):
            self._machine.forget()
            self.record.forget()
        self._follow(described)

    def _follow(self, described: Described) -> None:
        self._described = described
        self._machine.follow(self.place.rules)
        if described.is_peeked:
            self.record.begin()

    def pull(
        self, count: int, wait_s: float | None, mode: ServiceBusReceiveMode, answer: Answer
    ) -> Begun:
        """Receive up to `count` messages; answer with a list of `Received`.

        The answer comes when all are there, after `wait_s` (`None`: no limit), or shortly after the
        first. Messages that are received and deleted are settled on the caller's word.
        """
        self._last_pull += 1
        deletes = mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
        pull: Pull[HeldMessage] = Pull(count, answer, number=self._last_pull, deletes=deletes)
        self._pulls[pull.number] = pull
        if wait_s is not None:
            pull.end_in(self._wire, wait_s, partial(self._withdraw, pull))
        self._machine.ask(pull.number, count, self._wire.now_s())
        self._turn_soon()
        return Begun(
            partial(self._withdraw, pull),
            partial(self._taken, pull) if deletes else None,
            partial(self._put_back, pull),
        )

    def complete(self, token: UUID, answer: Answer) -> None:
        """Ack a message; answer when the ack is with the kernel, so a process may end then."""
        held = self._locks.release(token).held
        self._settling.settle(held)
        held.channel.written(partial(succeed, answer))

    def abandon(self, token: UUID, answer: Answer) -> None:
        """Return a message to the queue, counted."""
        self._settling.give_back(self._locks.release(token).held)
        succeed(answer)

    def dead_letter(
        self, token: UUID, reason: str | None, description: str | None, answer: Answer
    ) -> None:
        """Move a message to the dead-letter queue."""
        place = self.place
        if place.is_dead_letter:
            raise ServiceBusError(
                f"A message of a dead-letter queue cannot be dead-lettered again: '{place.path}'."
            )

        def publishes(held: HeldMessage) -> Move:
            return moves.dead_letter(place, held, reason, description, {}, held.failures)

        self._settling.move(self._locks, token, publishes, Left.DEAD_LETTERED, answer)

    def defer(self, token: UUID, answer: Answer) -> None:
        """Defer a message; the queue of deferred messages exists."""

        def publishes(held: HeldMessage) -> Move:
            return moves.defer(self.place, held, {})

        self._settling.move(self._locks, token, publishes, Left.MOVED, answer)

    def renew(self, token: UUID, answer: Answer) -> None:
        """Give a lock its full duration from now; answer with its end (UTC ms)."""
        succeed(answer, self._locks.renew(token, self.place.queue.lock_duration_ms))

    def refuse(self, error: Exception) -> None:
        """Fail all waiting calls: no message can be received from here any more."""
        pulls, self._pulls = self._pulls, {}
        for pull in pulls.values():
            self._withdrawals[self._machine.withdraw(pull.number)] = pull
            pull.fail(error)
        self._turn_soon()

    def lose(self) -> None:
        """Give up the channels: RabbitMQ delivers held messages again."""
        self._channels.close()
        self._on_lost()

    def close(self) -> None:
        """End all calls; locked messages go back to their queue."""
        self._is_closed = True
        for pull in list(self._pulls.values()):
            if pull.deletes:
                pull.got.clear()  # no word of the caller can settle them any more
            self._finish(pull)
        self._channels.close()
        self._locks.close()
        if self._timer is not None:
            self._timer.cancel()

    # Deliveries.

    def _on_delivery(self, fetch: int, channel: Channel, delivery: Delivery) -> None:
        if channel.is_closed:  # RabbitMQ has taken the message back, and delivers it again
            return
        self._channels.hold(channel)
        try:
            found = facts(
                delivery.properties,
                delivery.body,
                delivery.exchange,
                can_expire=not self.place.is_dead_letter,
                reader=self.place.reader,
            )
        except ValueError as error:
            self._machine.discarded(fetch)
            bare = unreadable(delivery.body, delivery.exchange)
            self._settling.refuse(Held(*bare, fetch, channel, delivery.tag), error)
            return
        self._on_held(Held(*found, fetch, channel, delivery.tag))

    def _on_held(self, held: HeldMessage) -> None:
        """Give a delivered message to its receiver, or do what else becomes of it."""
        machine, place, now_s = self._machine, self.place, self._wire.now_s()
        receiver = None
        if is_stray(held, place, place.active_exchange):
            machine.strayed(held, now_s)
        else:
            if place.is_dead_letter:
                held.failures = failures_of(held, place)
            receiver = machine.arrived(held, now_s, self._wire.now_ms())
        if held.failures and not machine.due and not place.is_dead_letter:
            self.record.failed(held.number, held.failures)
        if receiver is not None:
            self._deliver(receiver, held)
        self._carry_out()

    def _deliver(self, receiver: int, held: HeldMessage) -> None:
        pull = self._pulls.get(receiver)
        if pull is None:
            self._machine.put_down(held, self._wire.now_s())
            return
        if pull.deletes:
            pull.got.append((held, held.received()))
        else:
            token, until_ms = self._locks.acquire(held, self.place.queue.lock_duration_ms)
            received = held.received(lock_token=token, locked_until_ms=until_ms)
            pull.got.append((held, received))
        if pull.is_full:
            self._finish(pull)
        elif len(pull.got) == 1:
            pull.end_soon(self._wire, partial(self._withdraw, pull))

    def _withdraw(self, pull: Pull[HeldMessage]) -> None:
        if pull.number in self._pulls and not pull.is_withdrawn:
            pull.is_withdrawn = True
            self._withdrawals[self._machine.withdraw(pull.number)] = pull
            self._turn_soon()

    def _finish(self, pull: Pull[HeldMessage]) -> None:
        """Give the caller the messages; if the caller has given up, release them."""
        self._pulls.pop(pull.number, None)
        if pull.is_finished:  # the call was full before RabbitMQ had answered its end
            return
        if not pull.finish():
            self._release(pull)

    def _taken(self, pull: Pull[HeldMessage]) -> None:
        """Settle what the caller has received and deleted."""
        if pull.hear():
            for held, _ in pull.got:
                if not held.channel.is_closed:
                    self._settling.settle(held)

    def _put_back(self, pull: Pull[HeldMessage]) -> None:
        if pull.hear():
            self._release(pull)

    def _release(self, pull: Pull[HeldMessage]) -> None:
        for held, received in pull.got:
            self._untouched(held, received.lock_token)

    def _untouched(self, held: HeldMessage, token: UUID | None) -> None:
        """Release a message for the next receiver; before 4.3 RabbitMQ counts returns."""
        if token is not None:
            self._locks.drop(token)
        if not held.channel.is_closed:
            self._machine.release(held, self._wire.now_s(), self._wire.now_ms())
            self._carry_out()

    # What the machine decides.

    def _turn_soon(self) -> None:
        if not self._is_turn_due and not self._is_closed:
            self._is_turn_due = True
            self._wire.soon(self._act)

    def _act(self) -> None:
        """Bring fetches in line with the receivers' demand."""
        self._is_turn_due = False
        if self._is_closed:
            return
        now_s = self._wire.now_s()
        can_fetch = self._channels.can_fetch and now_s >= self._not_before_s
        self._machine.plan(now_s, self._wire.now_ms(), can_fetch=can_fetch)
        if self._machine.due:
            self._do_all()
        self._watch()

    def _carry_out(self) -> None:
        """Carry out the machine's effects, and let it fetch again."""
        if self._machine.due:
            self._do_all()
        self._turn_soon()

    def _do_all(self) -> None:
        for effect in self._machine.take():
            if isinstance(effect, Deliver):
                self._deliver(effect.receiver, effect.message)
            elif isinstance(effect, Ack | Requeue | End | SendBack):
                self._settling.do(effect)
            elif isinstance(effect, Withdrawn):
                self._finish(self._withdrawals.pop(effect.ticket))
            else:
                self._fetch(effect)

    def _fetch(self, effect: Open | Get | Look | Close) -> None:
        try:
            self._fetches.carry_out(effect)
        except ServiceBusError:  # no channel for the effect; messages of other channels stay locked
            self._not_before_s = self._wire.now_s() + SETTLE_S
            self._machine.closed(effect.fetch)
            self._turn_soon()

    def _watch(self) -> None:
        """Set the timer for the next time-driven effect."""
        due_s = self._machine.due_s()
        if self._pulls and self._not_before_s > self._wire.now_s():
            due_s = min(self._not_before_s, due_s or self._not_before_s)
        if due_s == self._due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_s = due_s
        if due_s is not None:
            wait_s = max(0.0, due_s - self._wire.now_s()) + 0.001
            self._timer = self._wire.later(wait_s, self._on_due)

    def _on_due(self) -> None:
        self._timer = self._due_s = None
        self._turn_soon()

    def _on_lost(self, error: ServiceBusError | None = None) -> None:
        """Forget held messages, as RabbitMQ took them back; calls wait on, unless refused."""
        self._not_before_s = self._wire.now_s() + SETTLE_S
        self._fetches.lose()
        self._machine.lose()
        self._locks.lose()
        if any(refusal in str(error) for refusal in REFUSALS):
            self.refuse(ServiceBusAuthorizationError(str(error)))
        self._is_turn_due = False  # an interrupted turn never ended
        self._turn_soon()
