"""The messages of one shard of a session entity: the session machine's effects on RabbitMQ.

The delivery count is in the message. To raise it, the message is published again (publish, confirm,
ack). RabbitMQ's own counts tell how often the owner changed: they are not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, assert_never
from uuid import UUID

from bridge.broker.connection.delivery import Delivery
from bridge.broker.failpoint import reach
from bridge.engine import texts
from bridge.engine.clock import later, now_ms
from bridge.engine.services import Services
from bridge.engine.sessions import events
from bridge.engine.sessions.kept_sessions import KeptSessions
from bridge.engine.sessions.shard_channels import ShardChannels
from bridge.engine.sessions.untaken import Untaken
from bridge.engine.settlement.held_message import HeldMessage, unreadable
from bridge.machine.inbox.arrival import MALFORMED_MESSAGE
from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.machine.queue.second_copies import Left, digest
from bridge.machine.queue.settled import SettledNumbers
from bridge.machine.sessions import effects as fx
from bridge.machine.sessions.entry import OUT, SessionEntry
from bridge.machine.sessions.sessions import Sessions
from bridge.message.alarm import Alarm
from bridge.message.end_rules import rules_of
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.model.errors import SessionLockLost
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.wire import sessions as wire
from bridge.wire.basic import Properties
from bridge.wire.commits import OutcomeKind
from bridge.wire.inquiries import Told
from bridge.wire.record import Record
from bridge.wire.sessions import Key

Tell = Callable[[Key, events.Event], None]


class SessionMessages:
    """All messages of one shard, by session; their owner for settling (`settlement.owner.Owner`).

    Args:
        tell: called with each event of a receiver.

    Attributes:
        path: the entity's path.
        queue: the entity's definition.
        shard: the number of the shard.
        resource: the name of the shard's queue in RabbitMQ.
        machine: the state machine that gives sessions and messages to receivers.
        kept: the sessions that transactions keep.
        reader: reads the copies of a subscription; `None`: it is a queue's shard.
        windows: the channels that hold the messages; `None` while this process is not the owner.
    """

    is_dead_letter = is_deferred = False

    def __init__(
        self,
        queue: model.ReceiveEntity,
        shard: int,
        *,
        budget: MemoryBudget,
        settled: SettledNumbers,
        services: Services,
        tell: Tell,
    ) -> None:
        self.queue = queue
        self.shard = shard
        self.path = EntityPath(queue.path)
        self.resource = names.active_queue(queue.path, shard)
        self.windows: ShardChannels | None = None
        self.machine: Sessions[HeldMessage] = Sessions(
            budget,
            settled,
            lock_duration_ms=queue.lock_duration_ms,
            rules=rules_of(queue),
        )
        self.kept = KeptSessions(self.machine.pins, self.do)
        self._settled = settled
        self._departure = services.departure
        self._poison = services.poison
        self._locks = services.locks
        self._counters = services.counters
        self._record = services.settlements.of(names.active_queue(queue.path)).left_active
        self._tell = tell
        self.reader = reader_of(queue)
        self._modes: dict[Key, int] = {}
        self._untaken = Untaken()
        self._due: deque[fx.Effect] = deque()
        self._is_acting = False
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(
            lambda: self.do(self.machine.tick(now_ms())), now_ms=now_ms, later=later
        )

    def __repr__(self) -> str:
        return f"SessionMessages({self.path}, {self.machine!r})"

    def update(self, queue: model.ReceiveEntity) -> None:
        """Take over a changed definition."""
        self.queue, self.reader = queue, reader_of(queue)
        self.machine.lock_duration_ms = queue.lock_duration_ms
        self.machine.rules = rules_of(queue)

    def lose(self) -> None:
        """End all locks and give all messages back; each receiver is told `SessionLost`."""
        windows, self.windows = self.windows, None
        if windows is not None:
            windows.close()
        self.stop()
        self._locks.lose_owner(self)
        self._modes.clear()
        self._untaken.clear()
        self._due.clear()
        self.kept.clear()
        for effect in self.machine.clear():
            if isinstance(effect, fx.LockExpired):
                self._tell(_key(effect.receiver), events.SessionLost(has_moved=True))

    def stop(self) -> None:
        """Stop the timer of locks."""
        self._alarm.stop()

    def sweep(self) -> Any:
        """End expired messages at the head of each session, a session a step."""
        for effects in self.machine.sweep(now_ms=now_ms()):
            self.do(effects)
            yield

    def refresh(self, at_most: int) -> bool:
        """Publish up to `at_most` old messages again; return whether there were any."""
        effects = self.machine.refresh(at_most, now_ms=now_ms())
        self.do(effects)
        return bool(effects)

    # Requests of receivers.

    def accept(self, key: Key, session_id: str | None, *, deletes: int) -> None:
        """Give a receiver a session, now or later; `None`: the next one. `deletes`: see `wire`."""
        self._modes[key] = deletes
        self.do(self.machine.accept(key, session_id, now_ms=now_ms()))

    def add_credit(self, key: Key, count: int) -> None:
        """Add credit for `count` more messages of a receiver."""
        self.do(self.machine.add_credit(key, count, now_ms=now_ms()))

    def drain(self, key: Key) -> None:
        """Take back a receiver's credit."""
        self.machine.drain(key)

    def taken(self, key: Key, number: int, error: str = "") -> None:
        """Settle a message: the receiver's client has it, or (`error`) no client can have it."""
        holding = self._untaken.take(key, number)
        place = None if holding is None else self._place(holding)
        if holding is None or place is None or place.state != OUT or not self.holds(holding):
            return
        if error:
            self._poison.note("session", self.resource, error)
            holding.record = Record(Properties(delivery_mode=2), holding.record.body)
            self.departing(holding)
            self._departure.refuse(self, holding, MALFORMED_MESSAGE, error)
            return
        self.ack(holding, "engine.receive_and_delete.acked")
        self.left(holding, Left.SETTLED)
        self._counters.received_and_deleted += 1

    def close(self, key: Key, *, unused: bool) -> None:
        """End a receiver's session lock, or its wait; messages that were not taken go back.

        Args:
            unused: no client has had the session: it stays the next one.
        """
        self._forget(key)
        self.do(self.machine.close(key, unused=unused, now_ms=now_ms()))

    def _forget(self, key: Key) -> None:
        self._modes.pop(key, None)
        self._untaken.forget(key)

    @property
    def receivers(self) -> list[Key]:
        """The receivers that have a session, or wait for one."""
        return list(self._modes)

    def renew(self, session_id: str) -> int:
        """Renew the locks of a session and of its delivered messages; return the end (UTC ms).

        Raises:
            SessionLockLost: no receiver holds the session.
        """
        renewed = self.machine.renew(session_id, now_ms=now_ms())
        if renewed is None:
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        self._locks.renew([place.lock for place in renewed[1] if place.lock is not None])
        self._alarm.set(self.machine.due_ms())
        return renewed[0]

    def check(self, session_id: str) -> None:
        """Raise SessionLockLost unless a receiver holds the session."""
        if not self.machine.is_held(session_id, now_ms=now_ms()):
            raise SessionLockLost(texts.SESSION_LOCK_LOST)

    def take(self, session_id: str) -> HeldMessage | None:
        """Take a held session's next message; `None`: there is none, or its body is fetched."""
        effects, place = self.machine.take(session_id, now_ms=now_ms())
        self.do(effects)
        return None if place is None else _message(place)

    # The interface for settling (`settlement.owner.Owner`).

    def holds(self, holding: HeldMessage) -> bool:
        """Return whether the message is still unacked on an open channel of this process."""
        return self.windows is not None and self.windows.holds(holding.channel)

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Ack a message; `point` is the failpoint behind the ack."""
        self.departing(holding)
        holding.channel.ack(holding.tag)
        reach(point, holding.channel)

    def departing(self, holding: HeldMessage) -> None:
        """Note that a message is about to be settled, or handed over."""
        place = self._place(holding)
        if place is not None:
            self.machine.leaving(place)

    def stayed(self, holding: HeldMessage) -> None:
        """Undo `departing` or `putting_back` after a failed hand-over."""
        self.let_go(holding)

    def keep_out(self, holding: HeldMessage) -> None:
        """Note that a transaction is to settle a message, and keep its session."""
        if (place := self._place(holding)) is not None:
            self.kept.keep(holding, place.session_id)
        self.departing(holding)

    def let_go(self, holding: HeldMessage) -> bool:
        """Do what `stayed` does; return whether the receiver has the message again."""
        try:
            return self._let_go(holding)
        finally:
            self.kept.free(holding)

    def _let_go(self, holding: HeldMessage) -> bool:
        if (place := self.machine.find(holding.identity)) is None:
            return False
        effects = self.machine.stayed(place, (holding.channel, holding.tag), now_ms=now_ms())
        if effects is not None:
            self._loop.call_soon(self._end_lock, place.lock)  # the caller puts the lock back first
            self.do(effects)
        return effects is None

    def putting_back(self, holding: HeldMessage, generation: int) -> None:
        """Note that a message is about to be published into its queue again."""
        place = self._place(holding)
        if place is not None:
            self.machine.returning(place, now_ms=now_ms())

    def give_back(self, holding: HeldMessage, point: str) -> None:
        """Make a message available again with its delivery count raised by 1."""
        place = self._place(holding)
        # The session's lock may have ended at the same instant: the count is raised already.
        if place is not None and place.state == OUT:
            self.do([self.machine.fail(place, now_ms=now_ms())])

    def release(self, holding: HeldMessage) -> None:
        """Make a message available again, its delivery count unchanged."""
        place = self._place(holding)
        if place is not None and place.state == OUT:
            self.do(self.machine.released(place, now_ms=now_ms()))

    def left(self, holding: HeldMessage, how: Left) -> None:
        """Note that a message has left the queue; one that was replaced comes again."""
        if how is Left.REPLACED:
            return
        place = self._place(holding)
        self._record(holding.number)
        if place is not None:
            self.do(self.machine.left(place, how))

    # Deliveries.

    def decided(self, holding: HeldMessage, told: Told) -> None:
        """Note that a delivered message is settled as was decided: it is added to no session."""
        if told is not None and told[0] is OutcomeKind.COMPLETE:
            self._settled.add(holding.number, digest(holding.identity))

    def refuse(self, delivery: Delivery, error: str) -> None:
        """Make a message that does not belong in its queue a dead letter, and log it as poison."""
        self._poison.note("session", self.resource, error)
        self._departure.refuse(self, unreadable(delivery, 0), MALFORMED_MESSAGE, error)

    # Effects.

    def do(self, effects: list[fx.Effect]) -> None:
        """Carry out effects, in the order of the machine's commands.

        A receiver that is given a message may ask for more at once: those come behind what is due.
        """
        self._due += effects
        if self._is_acting:
            return
        self._is_acting = True
        try:
            while self._due:
                self._carry_out(self._due.popleft())
        finally:
            self._is_acting = False
        self._alarm.set(self.machine.due_ms())

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Deliver(receiver, place, until_ms):
                self._deliver(_key(receiver), place, until_ms)
            case fx.Given(receiver, session_id, until_ms):
                self._tell(_key(receiver), events.SessionGiven(session_id, until_ms))
            case fx.RefuseSession(receiver):
                self._forget(_key(receiver))
                self._tell(_key(receiver), events.SessionRefused())
            case fx.LockExpired(receiver):
                self._forget(_key(receiver))
                self._counters.locks_expired += 1
                self._tell(_key(receiver), events.SessionLost(has_moved=False))
            case fx.Unlock(place):
                self._end_lock(place.lock)
            case fx.ReturnCounted(place):
                self._end_lock(place.lock)
                self._departure.expire_lock(self, _message(place))
            case fx.End(place, fate, failed):
                self._end_lock(place.lock)
                self._departure.finish(self, _message(place), fate, failed=failed)
            case fx.FetchBody(place):
                channel, tag = place.where
                channel.nack(tag)
                reach("engine.session.returned", channel)
            case fx.Refresh(place):
                self._departure.refresh(self, _message(place))
            case fx.Drop(where):
                channel, tag = where
                self._departure.note_second_copy()
                if self.windows is not None and self.windows.holds(channel):
                    channel.ack(tag)
                    reach("engine.drop.acked", channel)
            case fx.ComeAgain(where):
                channel, tag = where
                if self.windows is not None and self.windows.holds(channel):
                    channel.nack(tag)
                    reach("engine.session.returned", channel)
            case _:
                assert_never(effect)

    def _deliver(self, key: Key, place: SessionEntry[HeldMessage], session_until_ms: int) -> None:
        holding = _message(place)
        mode = self._modes.get(key)
        if mode is None or place.state != OUT:
            return  # the receiver has ended since, and the message is available again
        self._counters.delivered += 1
        if mode != wire.BY_TOKEN:
            number = self._untaken.add(key, holding)
            self._tell(key, events.SessionMessage(holding.received(), number))
            if mode == wire.WHEN_SENT:
                self.taken(key, number)
            return
        # After LockDuration was made shorter, the rest of the session's lock may be longer.
        duration_ms = max(self.queue.lock_duration_ms, session_until_ms - now_ms())
        token, until_ms = self._locks.acquire(self, holding, duration_ms)
        place.lock = token
        received = holding.received(lock_token=token, locked_until_ms=until_ms)
        self._tell(key, events.SessionMessage(received))

    def _end_lock(self, token: UUID | None) -> None:
        if token is not None:
            self._locks.release(token)

    def _place(self, holding: HeldMessage) -> SessionEntry[HeldMessage] | None:
        place = self.machine.find(holding.identity)
        if place is None or place.where != (holding.channel, holding.tag):
            return None
        return place


def _key(receiver: Any) -> Key:
    return receiver  # type: ignore[no-any-return]


def _message(place: SessionEntry[HeldMessage]) -> HeldMessage:
    assert place.message is not None, "only what has its body leaves"
    return place.message
