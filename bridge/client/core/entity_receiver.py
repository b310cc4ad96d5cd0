"""A client's receiving from one queue of RabbitMQ: fetches, locks, settlement.

All the application's receivers of the queue share one `EntityReceiver`, so a lock outlives its
receiver and ends with the client. The rules are those of a bridge: fetches (`machine.credit`), ends
of locks (`machine.locks`), second copies (`machine.deduplicator`).
"""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.channels import Channels, way_of
from bridge.client.core.fetching import Fetching
from bridge.client.core.holding import Copy, Held
from bridge.client.core.locktable import LockTable
from bridge.client.core.place import QueuePlace
from bridge.client.core.publisher import Publisher
from bridge.client.core.pull import Begun, Pull
from bridge.client.core.settlements import Settlements
from bridge.client.core.settling import Settling
from bridge.client.core.wire import Answer, Channel, Delivery, Timer, Wire, succeed
from bridge.client.exceptions import ServiceBusAuthorizationError, ServiceBusError
from bridge.machine.credit.effects import Deliver, Return, Withdrawn
from bridge.machine.deduplicator import CopyStatus, Deduplicator, Left
from bridge.machine.fate import Fate
from bridge.machine.settled import SettledMemory
from bridge.message import moves
from bridge.message.fate import failures_of, fate_of, is_stray
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
        self._credit, limits = way_of(described)
        self._channels = Channels(wire, limits, self._on_lost, self._turn_soon)
        self._fetching = Fetching(
            self.place.resource, self._credit, self._channels, self._on_delivery, self._turn_soon
        )
        self._deduplicator: Deduplicator[Copy] = Deduplicator(settled.numbers())
        self.record = settlements.of(self.place.resource, self._deduplicator.settled)
        self._settling = Settling(
            self.place,
            wire=wire,
            publisher=publisher,
            channels=self._channels,
            credit=self._credit,
            fetching=self._fetching,
            deduplicator=self._deduplicator,
            turn_soon=self._turn_soon,
            record=self.record,
        )
        self._locks = LockTable(wire, self._settling.give_back)
        self._pulls: dict[int, Pull[Held]] = {}
        self._withdrawals: dict[int, Pull[Held]] = {}
        self._last_pull = 0
        self._not_before_s = 0.0
        self._is_turn_due = False
        self._is_closed = False
        self._timer: Timer | None = None
        self._due_s: float | None = None
        self._follow(described)

    def __repr__(self) -> str:
        return f"EntityReceiver({self.place.resource}, {self._credit!r}, {len(self._locks)} locks)"

    @property
    def is_in_use(self) -> bool:
        """Whether a call waits here, or a lock is held."""
        return bool(self._pulls or len(self._locks))

    @property
    def held_count(self) -> int:
        """How many messages are held, unacked."""
        return len(self._deduplicator)

    def update(self, described: Described) -> None:
        """Take over a changed definition.

        An entity of a new incarnation counts from 1. Locks stay: their messages may be of the new
        incarnation.
        """
        if described is self._described:
            return
        if self.place.update(described):
            self._deduplicator.forget()
            self.record.forget()
        self._follow(described)

    def _follow(self, described: Described) -> None:
        self._described = described
        self._credit.limit(self.place.rules.waiting_max)
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
        pull: Pull[Held] = Pull(count, answer, number=self._last_pull, deletes=deletes)
        self._pulls[pull.number] = pull
        if wait_s is not None:
            pull.end_in(self._wire, wait_s, partial(self._withdraw, pull))
        self._credit.ask(pull.number, count, self._wire.now_s())
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

        def publishes(held: Held) -> Move:
            return moves.dead_letter(place, held, reason, description, {}, held.failures)

        self._settling.move(self._locks, token, publishes, Left.DEAD_LETTERED, answer)

    def defer(self, token: UUID, answer: Answer) -> None:
        """Defer a message; the queue of deferred messages exists."""

        def publishes(held: Held) -> Move:
            return moves.defer(self.place, held, {})

        self._settling.move(self._locks, token, publishes, Left.MOVED, answer)

    def renew(self, token: UUID, answer: Answer) -> None:
        """Give a lock its full duration from now; answer with its end (UTC ms)."""
        succeed(answer, self._locks.renew(token, self.place.queue.lock_duration_ms))

    def refuse(self, error: Exception) -> None:
        """Fail all waiting calls: no message can be received from here any more."""
        pulls, self._pulls = self._pulls, {}
        for pull in pulls.values():
            self._withdrawals[self._credit.withdraw(pull.number)] = pull
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
            self._credit.discarded(fetch)
            bare = unreadable(delivery.body, delivery.exchange)
            self._settling.refuse(Held(*bare, fetch, channel, delivery.tag), error)
            return
        self._on_held(Held(*found, fetch, channel, delivery.tag))
        self._turn_soon()

    def _on_held(self, held: Held) -> None:
        """Hold a delivered message, unless it is a second copy or of another queue."""
        if is_stray(held, self.place, self.place.active_exchange):
            self._credit.discarded(held.fetch)
            self._settling.surely(held, moves.send_back(self.place, held), Left.MOVED)
        elif (status := self._deduplicator.status_of(held)) is not CopyStatus.NEW:
            self._credit.discarded(held.fetch)
            copy = Copy(held.fetch, held.channel, held.tag)
            if status is CopyStatus.HELD:
                self._deduplicator.wait(held, copy)
            else:
                self._settling.drop(copy)
        else:
            self._deduplicator.hold(held)
            self._on_message(held)

    def _on_message(self, held: Held) -> None:
        fate = fate_of(held, self.place.rules, self._wire.now_ms())
        if fate is not Fate.AVAILABLE:
            self._credit.discarded(held.fetch)
            self._settling.end(held, fate)
            return
        if self.place.is_dead_letter:
            held.failures = failures_of(held, self.place)
        elif held.failures:
            self.record.failed(held.number, held.failures)
        receiver = self._credit.arrived(held.fetch, held, self._wire.now_s())
        if receiver is not None:
            self._deliver(receiver, held)

    def _deliver(self, receiver: int, held: Held) -> None:
        pull = self._pulls.get(receiver)
        if pull is None:
            self._credit.released(held, self._wire.now_s())
            return
        if pull.deletes:
            pull.got.append((held, held.received()))
        else:
            lock = self._locks.acquire(held, self.place.queue.lock_duration_ms)
            pull.got.append((held, held.received(*lock)))
        if pull.is_full:
            self._finish(pull)
        elif len(pull.got) == 1:
            pull.end_soon(self._wire, partial(self._withdraw, pull))

    def _withdraw(self, pull: Pull[Held]) -> None:
        if pull.number in self._pulls and not pull.is_withdrawn:
            pull.is_withdrawn = True
            self._withdrawals[self._credit.withdraw(pull.number)] = pull
            self._turn_soon()

    def _finish(self, pull: Pull[Held]) -> None:
        """Give the caller the messages; if the caller has given up, release them."""
        self._pulls.pop(pull.number, None)
        if pull.is_finished:  # the call was full before RabbitMQ had answered its end
            return
        if not pull.finish():
            self._release(pull)

    def _taken(self, pull: Pull[Held]) -> None:
        """Settle what the caller has received and deleted."""
        if pull.hear():
            for held, _ in pull.got:
                if not held.channel.is_closed:
                    self._settling.settle(held)

    def _put_back(self, pull: Pull[Held]) -> None:
        if pull.hear():
            self._release(pull)

    def _release(self, pull: Pull[Held]) -> None:
        for held, received in pull.got:
            self._untouched(held, received.lock_token)

    def _untouched(self, held: Held, token: UUID | None) -> None:
        """Release a message for the next receiver; before 4.3 RabbitMQ counts returns."""
        if token is not None:
            self._locks.drop(token)
        if not held.channel.is_closed:
            self._credit.released(held, self._wire.now_s())
            self._turn_soon()

    # Fetches.

    def _turn_soon(self) -> None:
        if not self._is_turn_due and not self._is_closed:
            self._is_turn_due = True
            self._wire.soon(self._act)

    def _act(self) -> None:
        """Carry out the strategy's effects: fetches follow the receivers' demand."""
        self._is_turn_due = False
        if self._is_closed:
            return
        now_s = self._wire.now_s()
        can_fetch = self._channels.can_fetch and now_s >= self._not_before_s
        for effect in self._credit.plan(now_s, can_fetch=can_fetch):
            if isinstance(effect, Deliver):
                self._offer(effect.receiver, effect.message)
            elif isinstance(effect, Return):
                self._settling.requeue(effect.message, is_counted=False)
            elif isinstance(effect, Withdrawn):
                self._finish(self._withdrawals.pop(effect.ticket))
            else:
                self._carry_out(effect)
        self._watch()

    def _carry_out(self, effect: Any) -> None:
        try:
            self._fetching.carry_out(effect)
        except ServiceBusError:  # no channel for the effect; messages of other channels stay locked
            self._not_before_s = self._wire.now_s() + SETTLE_S
            self._credit.closed(effect.fetch)
            self._turn_soon()

    def _offer(self, receiver: int, held: Held) -> None:
        fate = fate_of(held, self.place.rules, self._wire.now_ms())
        if fate is Fate.AVAILABLE:
            self._deliver(receiver, held)
        else:
            self._credit.balance.waiters.restore(receiver)
            self._settling.end(held, fate)
            self._turn_soon()

    def _watch(self) -> None:
        """Set the timer for the next time-driven effect."""
        due_s = self._credit.due_s()
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
        self._fetching.lose()
        self._credit.lost()
        self._deduplicator.lose()
        self._locks.lose()
        if any(refusal in str(error) for refusal in REFUSALS):
            self.refuse(ServiceBusAuthorizationError(str(error)))
        self._is_turn_due = False  # an interrupted turn never ended
        self._turn_soon()
