"""A client's receiving from one queue of RabbitMQ: fetches, locks, settlement.

All the application's receivers of the queue share one `EntityReceiver`, so a lock outlives its
receiver and ends with the client. The rules are those of a bridge: what becomes of each message
(`message.queue_messages`), ends of locks (`machine.queue.locks`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from uuid import UUID

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.channels import ClientChannels
from bridge.client.core.hand_over import LOCK_LOST, ClientHandOver
from bridge.client.core.publisher import Publisher
from bridge.client.core.pull import Begun, Pull
from bridge.client.core.settlements import ClientSettlements
from bridge.client.core.wire import CallerFuture, Channel, Wire, fail, succeed
from bridge.client.exceptions import (
    MessageLockLostError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from bridge.machine.queue.locks import Lock
from bridge.machine.queue.second_copies import Left
from bridge.machine.queue.settled import SettledMemory
from bridge.message.channels import way_of
from bridge.message.departure import Departure, Told
from bridge.message.held import Held
from bridge.message.locktable import Locked, LockTable
from bridge.message.queue_messages import QueueMessages
from bridge.message.wake import Timer, Wake
from bridge.model import entity as model
from bridge.model.name import SubQueue
from bridge.topology import names
from bridge.topology.description import DescribedEntity

HeldMessage = Held[Channel]

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
        messages: the queue and its held messages.
        record: the queue's settled numbers for peeks.
    """

    def __init__(
        self,
        described: DescribedEntity,
        sub_queue: SubQueue,
        *,
        wire: Wire,
        publisher: Publisher,
        settled: SettledMemory,
        settlements: ClientSettlements,
    ) -> None:
        queue = _receivable(described)
        self._wire = wire
        make_credit, limits = way_of(
            described.capabilities, is_clustered=described.is_clustered, is_apart=True
        )
        self._wake = Wake(wire.soon, self._at, self._act)
        self._channels = ClientChannels(wire, limits, self._on_lost, self._wake.soon)
        hand_over = ClientHandOver(wire, publisher)
        self._departure = Departure(hand_over, hand_over, wire.now_ms)
        self.record = settlements.of(names.received(queue.path, sub_queue), self._settled)
        self.messages: QueueMessages[Channel] = QueueMessages(
            queue,
            sub_queue,
            credit=make_credit(),
            settled=settled.numbers(),
            departure=self._departure,
            channels=self._channels,
            wake=self._wake,
            now_s=wire.now_s,
            now_ms=wire.now_ms,
            deliver=self._deliver,
            withdrawn=self._end_withdrawal,
            on_left=self.record.left,
            on_failed=self.record.failed,
            on_refused=lambda error: None,
            on_acted=lambda: None,
            reach=lambda point, channel: None,
        )
        self._locks = LockTable(
            self._on_lock_expired, now_ms=wire.now_ms, later=wire.later, chance=os.urandom
        )
        self._pulls: dict[int, Pull[HeldMessage]] = {}
        self._withdrawals: dict[int, Pull[HeldMessage]] = {}
        self._last_pull = 0
        self._follow(described)

    def __repr__(self) -> str:
        return f"EntityReceiver({self.messages!r}, {len(self._locks)} locks)"

    @property
    def is_in_use(self) -> bool:
        """Whether a call waits here, or a lock is held."""
        return bool(self._pulls or len(self._locks))

    @property
    def held_count(self) -> int:
        """How many messages are held, unacked."""
        return self.messages.held

    def update(self, described: DescribedEntity) -> None:
        """Take over a changed definition.

        Locks stay when the entity was created anew: their messages may be of the new one.
        """
        if described is self._described:
            return
        if self.messages.follow(_receivable(described)):
            self.record.forget()
        self._follow(described)

    def _follow(self, described: DescribedEntity) -> None:
        self._described = described
        if described.is_peeked:
            self.record.begin()

    def _settled(self) -> Iterator[int]:
        return self.messages.machine.copies.settled()

    def pull(
        self, count: int, wait_s: float | None, mode: ServiceBusReceiveMode, answer: CallerFuture
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
        self.messages.ask(pull.number, count)
        return Begun(
            partial(self._withdraw, pull),
            partial(self._taken, pull) if deletes else None,
            partial(self._put_back, pull),
        )

    def complete(self, token: UUID, answer: CallerFuture) -> None:
        """Ack a message; answer when the ack is with the kernel, so a process may end then."""
        held = self._released(token).held[1]
        self._settle(held)
        held.channel.written(partial(succeed, answer))

    def abandon(self, token: UUID, answer: CallerFuture) -> None:
        """Return a message to the queue, counted."""
        self.messages.give_back(self._released(token).held[1], "")
        succeed(answer)

    def dead_letter(
        self, token: UUID, reason: str | None, description: str | None, answer: CallerFuture
    ) -> None:
        """Move a message to the dead-letter queue."""
        messages = self.messages
        if messages.is_dead_letter:
            path = messages.path.entity
            raise ServiceBusError(
                f"A message of a dead-letter queue cannot be dead-lettered again: '{path}'."
            )

        def begin(held: HeldMessage, told: Told) -> None:
            self._departure.dead_letter(messages, held, reason, description, {}, told)

        self._move(token, begin, answer)

    def defer(self, token: UUID, answer: CallerFuture) -> None:
        """Defer a message; the queue of deferred messages exists."""

        def begin(held: HeldMessage, told: Told) -> None:
            self._departure.defer(self.messages, held, {}, told)

        self._move(token, begin, answer)

    def _move(
        self, token: UUID, begin: Callable[[HeldMessage, Told], None], answer: CallerFuture
    ) -> None:
        """Hand a locked message over; if its target queue refuses it, its lock stays.

        Raises:
            MessageLockLostError, MessageSizeExceededError, ServiceBusError: nothing was published.
        """
        lock = self._released(token)
        held: HeldMessage = lock.held[1]

        def stay() -> None:
            self.messages.stayed(held)
            self._locks.restore(token, lock)

        def told(error: Exception | None) -> None:
            if error is None:
                succeed(answer)
            elif held.channel.is_closed:
                fail(answer, MessageLockLostError(LOCK_LOST))
            else:
                stay()
                fail(answer, ServiceBusError(f"The message stays locked: {error}"))

        self.messages.departing(held)
        try:
            begin(held, told)
        except Exception:
            stay()
            raise

    def _settle(self, held: HeldMessage) -> None:
        """Ack a message."""
        self.messages.ack(held, "")
        self.messages.left(held, Left.SETTLED)

    def renew(self, token: UUID, answer: CallerFuture) -> None:
        """Give a lock its full duration from now; answer with its end (UTC ms)."""
        locked = self._locks.find(token)
        is_held = locked is not None and not locked[1].channel.is_closed
        ends_ms = self._locks.renew([token]) if is_held else []
        if not ends_ms:
            raise MessageLockLostError(LOCK_LOST)
        succeed(answer, ends_ms[0])

    def refuse(self, error: Exception) -> None:
        """Fail all waiting calls: no message can be received from here any more."""
        pulls, self._pulls = self._pulls, {}
        for pull in pulls.values():
            self._withdrawals[self.messages.machine.withdraw(pull.number)] = pull
            pull.fail(error)
        self._wake.soon()

    def lose(self) -> None:
        """Give up the channels: RabbitMQ delivers held messages again."""
        self._channels.end()
        self._on_lost()

    def leave(self, left: Callable[[], None]) -> None:
        """Fetch no more; call `left` when RabbitMQ has taken all that was settled here."""
        messages = self.messages
        messages.is_closed = True
        cancelled = messages.fetches.end_all()
        counts = self._described.capabilities.nack_counts
        self._channels.leave(messages.resource, cancelled, left, counts=counts)

    def close(self) -> None:
        """End all calls; locked messages go back to their queue."""
        self.messages.is_closed = True
        for pull in list(self._pulls.values()):
            if pull.deletes:
                pull.got.clear()  # no word of the caller can settle them any more
            self._finish(pull)
        self._channels.end()
        self._locks.close()
        self._wake.close()

    def _released(self, token: UUID) -> Lock[Locked]:
        """End a lock and return it; raise MessageLockLostError if it has ended before."""
        lock = self._locks.release(token)
        if lock is None or lock.held[1].channel.is_closed:
            raise MessageLockLostError(LOCK_LOST)
        return lock

    def _on_lock_expired(self, messages: QueueMessages[Channel], held: HeldMessage) -> None:
        if messages.holds(held):
            messages.give_back(held, "")

    # What becomes of delivered messages.

    def _deliver(self, receiver: int, held: HeldMessage) -> None:
        pull = self._pulls.get(receiver)
        if pull is None:
            self.messages.put_down(held)
            return
        if pull.deletes:
            pull.got.append((held, held.received()))
        else:
            token, until_ms = self._locks.acquire(
                self.messages, held, self.messages.queue.lock_duration_ms
            )
            received = held.received(lock_token=token, locked_until_ms=until_ms)
            pull.got.append((held, received))
        if pull.is_full:
            self._finish(pull)
        elif len(pull.got) == 1:
            pull.end_soon(self._wire, partial(self._withdraw, pull))

    def _withdraw(self, pull: Pull[HeldMessage]) -> None:
        if pull.number in self._pulls and not pull.is_withdrawn:
            pull.is_withdrawn = True
            self._withdrawals[self.messages.machine.withdraw(pull.number)] = pull
            self._wake.soon()

    def _end_withdrawal(self, ticket: int) -> None:
        self._finish(self._withdrawals.pop(ticket))

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
                    self._settle(held)

    def _put_back(self, pull: Pull[HeldMessage]) -> None:
        if pull.hear():
            self._release(pull)

    def _release(self, pull: Pull[HeldMessage]) -> None:
        for held, received in pull.got:
            self._untouched(held, received.lock_token)

    def _untouched(self, held: HeldMessage, token: UUID | None) -> None:
        """Release a message for the next receiver; before 4.3 RabbitMQ counts returns."""
        if token is not None:
            self._locks.release(token)
        if not held.channel.is_closed:
            self.messages.release(held)

    # Time, and the loss of channels.

    def _act(self) -> None:
        if not self.messages.is_closed:
            self.messages.act()

    def _at(self, due_s: float, call: Callable[[], None]) -> Timer:
        return self._wire.later(max(0.0, due_s - self._wire.now_s()) + 0.001, call)

    def _on_lost(self, error: ServiceBusError | None = None) -> None:
        """Forget held messages, as RabbitMQ took them back; calls wait on, unless refused."""
        self._channels.pause()
        self.messages.lose()
        self._locks.end_all()
        if any(refusal in str(error) for refusal in REFUSALS):
            self.refuse(ServiceBusAuthorizationError(str(error)))
        self._wake.close()
        self._wake.is_due = False  # an interrupted turn never ended
        self._wake.soon()


def _receivable(described: DescribedEntity) -> model.ReceiveEntity:
    assert not isinstance(described.entity, model.Topic)
    return described.entity
