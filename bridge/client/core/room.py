"""One queue of RabbitMQ as a client receives from it: what was fetched, is locked, or leaves.

All receivers of a client share it, so a lock outlives its receiver and ends with the client. The
rules are those of a bridge: what is fetched (`machine.credit`), when a lock ends (`machine.locks`),
what is a second copy (`machine.deduplicator`).
"""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID, uuid4

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.channels import Channels, way_of
from bridge.client.core.fetching import Fetching
from bridge.client.core.holding import Copy, Held
from bridge.client.core.publisher import Publisher
from bridge.client.core.pull import Pull
from bridge.client.core.wire import Answer, Channel, Delivery, Timer, Wire, fail, succeed
from bridge.client.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusError,
)
from bridge.machine.arrival import MALFORMED_MESSAGE
from bridge.machine.credit.effects import Deliver, Return, Withdrawn
from bridge.machine.deduplicator import Deduplicator, Left, Standing
from bridge.machine.locks import Lock, Locks
from bridge.machine.publication import Publication
from bridge.machine.settled import SettledMemory
from bridge.message import moves
from bridge.message.fate import Fate, fate_of, is_stray
from bridge.message.message import EXHAUSTED, EXPIRED, facts, unreadable
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.model.name import SubQueue
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.topology.description import Described

UNLIMITED = 1 << 31
"""So many failed deliveries dead-letter what is a dead letter already."""

RETRY_S = 1.0
"""RabbitMQ takes nothing while it has an alarm or elects a leader; the message waits here."""

SETTLE_S = 1.0
"""After a failure a quorum queue may deliver out of order for a moment (docs/rabbitmq-faults.md:
order-after-kill)."""

LOCK_LOST = (
    "The lock on the message is lost: its time is over, its connection was lost, or the message "
    "was settled before."
)


class Room:
    """The messages of one queue that are here.

    Args:
        wire: the connection that is received on.
        publisher: of another connection, which may be blocked while this one is not.
        settled: where it is remembered what is settled.

    Attributes:
        path: the entity's.
        queue: its definition.
        resource: the RabbitMQ queue's name.
        is_dead_letter: whether it is a dead-letter queue.
    """

    def __init__(
        self,
        described: Described,
        sub_queue: SubQueue,
        *,
        wire: Wire,
        publisher: Publisher,
        settled: SettledMemory,
    ) -> None:
        assert not isinstance(described.entity, model.Topic)
        self.queue: model.ReceiveEntity = described.entity
        self.is_dead_letter = sub_queue is SubQueue.DEAD_LETTER
        name_of = names.dead_letter_queue if self.is_dead_letter else names.active_queue
        self.path = self.queue.path
        self.resource = name_of(self.queue.path)
        self._active_exchange = names.active_exchange(self.queue.front)
        self._reader = reader_of(self.queue)
        self._wire = wire
        self._publisher = publisher
        self._credit, limits = way_of(described)
        self._channels = Channels(wire, limits, self._on_lost, self._turn_soon)
        self._fetching = Fetching(
            self.resource, self._credit, self._channels, self._on_delivery, self._turn_soon
        )
        self._deduplicator: Deduplicator[Copy] = Deduplicator(settled.numbers())
        self._locks: Locks[Held] = Locks()
        self._lock_timer: Timer | None = None
        self._lock_timer_ms = 0
        self._pulls: dict[int, Pull] = {}
        self._withdrawals: dict[int, Pull] = {}
        self._last_pull = 0
        self._not_before_s = 0.0
        self._is_turn_due = False
        self._is_closed = False
        self._timer: Timer | None = None
        self._limit()

    def __repr__(self) -> str:
        return f"Room({self.resource}, {self._credit!r}, {len(self._locks)} locks)"

    @property
    def is_in_use(self) -> bool:
        """Whether somebody waits here, or holds a lock."""
        return bool(self._pulls or len(self._locks))

    def update(self, described: Described) -> None:
        """Take over a changed definition; an entity that was made anew counts from 1."""
        assert not isinstance(described.entity, model.Topic)
        if incarnation_of(described.entity) != incarnation_of(self.queue):
            self._deduplicator.forget()
        self.queue, self._reader = described.entity, reader_of(described.entity)
        self._limit()

    def pull(
        self, count: int, wait_s: float | None, mode: ServiceBusReceiveMode, answer: Answer
    ) -> int:
        """Receive up to so many messages; the answer is a list of `Received`.

        It comes when all are there, `wait_s` are over (`None`: never), or shortly after the first.

        Returns:
            The pull's number, for `stop`.
        """
        self._last_pull += 1
        pull = Pull(self._last_pull, count, mode, answer)
        self._pulls[pull.number] = pull
        if wait_s is not None:
            pull.end_in(self._wire, wait_s, partial(self._withdraw, pull))
        self._credit.ask(pull.number, count, self._wire.now_s())
        self._turn_soon()
        return pull.number

    def stop(self, number: int) -> None:
        """End a pull with what it has."""
        pull = self._pulls.get(number)
        if pull is not None:
            self._withdraw(pull)

    def complete(self, token: UUID, answer: Answer) -> None:
        """Settle a message for good."""
        held = self._release(token).held
        self._ack(held)
        self._left(held, Left.SETTLED)
        succeed(answer)

    def release(self, token: UUID, answer: Answer) -> None:
        """Let the next receiver have a message that its caller did not take, uncounted."""
        self._untouched(self._release(token).held, None)
        succeed(answer)

    def abandon(self, token: UUID, answer: Answer) -> None:
        """Give a message back, one more on its count."""
        self._give_back(self._release(token).held)
        succeed(answer)

    def dead_letter(
        self, token: UUID, reason: str | None, description: str | None, answer: Answer
    ) -> None:
        """Move a message to the dead-letter queue."""
        if self.is_dead_letter:
            raise ServiceBusError(
                f"A message of a dead-letter queue cannot be dead-lettered again: '{self.path}'."
            )
        lock = self._release(token)
        publish = moves.dead_letter(self, lock.held, reason, description, {}, lock.held.failures)
        self._move(token, lock, publish, Left.DEAD_LETTERED, answer)

    def defer(self, token: UUID, answer: Answer) -> None:
        """Set a message aside; the queue for that is there."""
        lock = self._release(token)
        publish = moves.defer(self, lock.held, {})
        self._move(token, lock, publish, Left.MOVED, answer)

    def renew(self, token: UUID, answer: Answer) -> None:
        """Give a lock its full duration from now; the answer is its end (UTC ms)."""
        held = self._locks.find(token.bytes, now_ms=self._wire.now_ms())
        until_ms = None
        if held is not None and not held.channel.is_closed:
            duration_ms = self.queue.lock_duration_ms
            until_ms = self._locks.renew(
                token.bytes, duration_ms=duration_ms, now_ms=self._wire.now_ms()
            )
        if until_ms is None:
            raise MessageLockLostError(LOCK_LOST)
        self._watch_locks()
        succeed(answer, until_ms)

    def refuse(self, error: Exception) -> None:
        """Nothing can be received from here any more: tell those who wait."""
        pulls, self._pulls = self._pulls, {}
        for pull in pulls.values():
            self._withdrawals[self._credit.withdraw(pull.number)] = pull
            pull.fail(error)
        self._turn_soon()

    def close(self) -> None:
        """End all; what is locked goes back to its queue."""
        self._is_closed = True
        for pull in list(self._pulls.values()):
            self._finish(pull)
        self._channels.close()
        for timer in (self._timer, self._lock_timer):
            if timer is not None:
                timer.cancel()

    def _limit(self) -> None:
        limit = UNLIMITED if self.is_dead_letter else self.queue.max_delivery_count
        self._credit.limit(limit)

    # What comes.

    def _on_delivery(self, fetch: int, channel: Channel, delivery: Delivery) -> None:
        self._channels.hold(channel)
        try:
            found = facts(
                delivery.properties,
                delivery.body,
                delivery.exchange,
                can_expire=not self.is_dead_letter,
                reader=self._reader,
            )
        except ValueError as error:
            self._credit.discarded(fetch)
            bare = unreadable(delivery.body, delivery.exchange)
            self._refuse(Held(*bare, fetch, channel, delivery.tag), error)
            return
        held = Held(*found, fetch, channel, delivery.tag)
        if is_stray(held, self, self._active_exchange):
            self._credit.discarded(fetch)
            self._surely(held, moves.send_back(self, held), Left.MOVED)
        elif (standing := self._deduplicator.standing(held)) is not Standing.NEW:
            self._credit.discarded(fetch)
            copy = Copy(fetch, channel, delivery.tag)
            if standing is Standing.HELD:
                self._deduplicator.wait(held, copy)
            else:
                self._drop(copy)
        else:
            self._deduplicator.hold(held)
            self._on_message(fetch, held)
        self._turn_soon()

    def _on_message(self, fetch: int, held: Held) -> None:
        fate = fate_of(held, self, self._wire.now_ms())
        if fate is not Fate.AVAILABLE:
            self._credit.discarded(fetch)
            self._end(held, fate)
            return
        if self.is_dead_letter:
            held.failures = held.died_after(self.queue.max_delivery_count)
        receiver = self._credit.arrived(fetch, held, self._wire.now_s())
        if receiver is not None:
            self._deliver(receiver, held)

    def _deliver(self, receiver: int, held: Held) -> None:
        pull = self._pulls.get(receiver)
        if pull is None:
            self._credit.released(held, self._wire.now_s())
            return
        if pull.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
            pull.got.append((held, held.received()))
        else:
            token = uuid4()
            until_ms = self._locks.acquire(
                token.bytes,
                held,
                duration_ms=self.queue.lock_duration_ms,
                now_ms=self._wire.now_ms(),
            )
            pull.got.append((held, held.received(token, until_ms)))
            self._watch_locks()
        if pull.is_full:
            self._finish(pull)
        elif len(pull.got) == 1:
            pull.end_soon(self._wire, partial(self._withdraw, pull))

    def _withdraw(self, pull: Pull) -> None:
        if pull.number in self._pulls and not pull.is_withdrawn:
            pull.is_withdrawn = True
            self._withdrawals[self._credit.withdraw(pull.number)] = pull
            self._turn_soon()

    def _finish(self, pull: Pull) -> None:
        """Give a caller what has come; when he is gone, nobody had it."""
        self._pulls.pop(pull.number, None)
        is_taken = pull.finish()
        for held, received in pull.got:
            if not is_taken:
                self._untouched(held, received.lock_token)
            elif received.lock_token is None and not held.channel.is_closed:
                self._ack(held)
                self._left(held, Left.SETTLED)

    def _untouched(self, held: Held, token: UUID | None) -> None:
        """Let the next receiver have a message; before 4.3 RabbitMQ counts what is returned."""
        if token is not None:
            self._locks.release(token.bytes, now_ms=self._wire.now_ms())
        if not held.channel.is_closed:
            self._credit.released(held, self._wire.now_s())
            self._turn_soon()

    # What is fetched.

    def _turn_soon(self) -> None:
        if not self._is_turn_due and not self._is_closed:
            self._is_turn_due = True
            self._wire.soon(self._act)

    def _act(self) -> None:
        """Bring what is fetched in line with what is asked for."""
        self._is_turn_due = False
        if self._is_closed:
            return
        now_s = self._wire.now_s()
        can_fetch = self._channels.can_fetch and now_s >= self._not_before_s
        for effect in self._credit.plan(now_s, can_fetch=can_fetch):
            if isinstance(effect, Deliver):
                self._offer(effect.receiver, effect.message)
            elif isinstance(effect, Return):
                self._requeue(effect.message, is_counted=False)
            elif isinstance(effect, Withdrawn):
                self._finish(self._withdrawals.pop(effect.ticket))
            else:
                self._carry_out(effect)
        self._watch()

    def _carry_out(self, effect: Any) -> None:
        try:
            self._fetching.carry_out(effect)
        except ServiceBusError:
            self._on_lost()

    def _offer(self, receiver: int, held: Held) -> None:
        fate = fate_of(held, self, self._wire.now_ms())
        if fate is Fate.AVAILABLE:
            self._deliver(receiver, held)
        else:
            self._credit.balance.waiters.restore(receiver)
            self._end(held, fate)
            self._turn_soon()

    def _watch(self) -> None:
        """Wake when there is something to do though nothing happens."""
        due_s = self._credit.due_s()
        if self._pulls and self._not_before_s > self._wire.now_s():
            due_s = min(self._not_before_s, due_s or self._not_before_s)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_s is not None:
            wait_s = max(0.0, due_s - self._wire.now_s()) + 0.001
            self._timer = self._wire.later(wait_s, self._turn_soon)

    def _on_lost(self, error: ServiceBusError | None = None) -> None:
        """RabbitMQ has taken everything back; who asked still asks."""
        self._not_before_s = self._wire.now_s() + SETTLE_S
        self._fetching.lose()
        self._credit.lost()
        self._deduplicator.lose()
        self._locks.lose(lambda held: True)
        self._turn_soon()

    # Locks.

    def _release(self, token: UUID) -> Lock[Held]:
        lock = self._locks.release(token.bytes, now_ms=self._wire.now_ms())
        if lock is None or lock.held.channel.is_closed:
            raise MessageLockLostError(LOCK_LOST)
        return lock

    def _restore(self, token: UUID, lock: Lock[Held]) -> None:
        self._locks.restore(token.bytes, lock)
        self._watch_locks()

    def _watch_locks(self) -> None:
        end_ms = self._locks.next_end_ms()
        if end_ms is None or (self._lock_timer is not None and self._lock_timer_ms <= end_ms):
            return
        if self._lock_timer is not None:
            self._lock_timer.cancel()
        self._lock_timer_ms = end_ms
        wait_s = max(0.0, (end_ms - self._wire.now_ms()) / 1000) + 0.001
        self._lock_timer = self._wire.later(wait_s, self._end_locks)

    def _end_locks(self) -> None:
        self._lock_timer = None
        for held in self._locks.expire(self._wire.now_ms()):
            if not held.channel.is_closed:
                self._give_back(held)
        self._watch_locks()

    # How messages go.

    def _ack(self, held: Held) -> None:
        self._settling(held.fetch)
        held.channel.ack(held.tag)
        self._channels.let_go(held.channel)

    def _give_back(self, held: Held) -> None:
        self._credit.returning()
        self._turn_soon()
        self._requeue(held, is_counted=True)

    def _requeue(self, held: Held, *, is_counted: bool) -> None:
        if held.channel.is_closed:
            return
        self._deduplicator.let_go(held)
        self._send_back(held, is_counted=is_counted)
        for copy in self._deduplicator.take_free(held):
            self._send_back(copy, is_counted=is_counted)

    def _send_back(self, held: Held | Copy, *, is_counted: bool) -> None:
        if held.channel.is_closed:
            return
        self._settling(held.fetch)
        (held.channel.reject if is_counted else held.channel.nack)(held.tag)
        self._channels.returned(held.channel)
        self._channels.let_go(held.channel)

    def _drop(self, copy: Copy) -> None:
        if not copy.channel.is_closed:
            self._settling(copy.fetch)
            copy.channel.ack(copy.tag)
            self._channels.let_go(copy.channel)

    def _settling(self, fetch: int) -> None:
        """Close the window that an ack or return of its message would refill in vain."""
        close = self._credit.settling(fetch, self._wire.now_s())
        if close is not None:
            self._fetching.end(close.fetch)
        self._turn_soon()

    def _left(self, held: Held, how: Left) -> None:
        for copy in self._deduplicator.leave(held, how):
            self._drop(copy)
        for copy in self._deduplicator.take_free(held):
            self._send_back(copy, is_counted=False)

    def _end(self, held: Held, fate: Fate) -> None:
        """End a message that no receiver may have any more."""
        if fate is Fate.EXPIRED and not self.queue.dead_lettering_on_message_expiration:
            self._ack(held)
            self._left(held, Left.SETTLED)
            return
        reason, description = EXPIRED if fate is Fate.EXPIRED else EXHAUSTED
        dead = moves.dead_letter(self, held, reason, description, {}, held.failures)
        self._surely(held, dead, Left.DEAD_LETTERED)

    def _refuse(self, held: Held, error: Exception) -> None:
        description = f"The message cannot be handled: {type(error).__name__}: {error}"
        publish = moves.refuse(self, held, MALFORMED_MESSAGE, description)
        self._surely(held, publish, Left.MOVED)

    def _move(
        self, token: UUID, lock: Lock[Held], publish: Publication, how: Left, answer: Answer
    ) -> None:
        """Publish, and when that is confirmed ack; else the lock is as it was."""
        held = lock.held
        if len(publish.properties) > moves.PROPERTIES_BYTES_MAX:
            self._restore(token, lock)
            raise MessageSizeExceededError("The message's properties would be too large.")

        def confirmed(error: Exception | None) -> None:
            if held.channel.is_closed:
                fail(answer, MessageLockLostError(LOCK_LOST))
            elif error is not None:
                self._restore(token, lock)
                fail(answer, ServiceBusError(f"The message stays locked: {error}"))
            else:
                self._ack(held)
                self._left(held, how)
                succeed(answer)

        try:
            self._publisher.publish(*publish, confirmed)
        except ServiceBusError:
            self._restore(token, lock)
            raise

    def _surely(self, held: Held, publish: Publication, how: Left) -> None:
        """Move a message, and try again until it is done or RabbitMQ has taken it back."""

        def confirmed(error: Exception | None) -> None:
            if held.channel.is_closed:
                return
            if error is None:
                self._ack(held)
                self._left(held, how)
            else:
                self._wire.later(RETRY_S, attempt)

        def attempt() -> None:
            if not held.channel.is_closed:
                try:
                    self._publisher.publish(*moves.fitting(publish), confirmed)
                except ServiceBusError:
                    self._wire.later(RETRY_S, attempt)

        attempt()
