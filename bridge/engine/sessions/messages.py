"""The messages of one session entity: the machine of sessions, carried out on RabbitMQ.

A count that Service Bus's rules raise is in the message, which is published again (publish,
confirm, ack): RabbitMQ's own counts say how often holders changed, and are not looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, assert_never
from uuid import UUID

from bridge.broker.connection.delivery import Delivery
from bridge.broker.failpoint import reach
from bridge.engine import texts
from bridge.engine.alarm import Alarm
from bridge.engine.clock import now_ms
from bridge.engine.ownership.services import Services
from bridge.engine.sessions import events
from bridge.engine.sessions.arrival import (
    NO_SESSION_DESCRIPTION,
    NO_SESSION_REASON,
    place_of,
)
from bridge.engine.sessions.windows import Windows
from bridge.engine.settlement.held_message import HeldMessage, read, unreadable
from bridge.machine.arrival import MALFORMED_MESSAGE
from bridge.machine.deduplicator import Left
from bridge.machine.memory_budget import MemoryBudget
from bridge.machine.sessions import effects as fx
from bridge.machine.sessions.place import OUT, Place
from bridge.machine.sessions.sessions import Sessions
from bridge.machine.settled import SettledNumbers
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.model.errors import SessionLockLost
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.wire.sessions import Key

Tell = Callable[[Key, events.Event], None]


class SessionMessages:
    """All messages of one shard, by session; see `owner.Owner` for what settling needs.

    Args:
        tell: called with what a receiver is to hear.

    Attributes:
        path: the entity's.
        queue: the entity's definition.
        resource: the RabbitMQ queue's name.
        machine: which message is whose.
        arrivals: how many have come from RabbitMQ.
        windows: where they are held; `None` while they are not.
    """

    is_dead_letter = False
    is_deferred = False

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
        self.path = EntityPath(queue.path)
        self.resource = names.active_queue(queue.path, shard)
        self.arrivals = 0
        self.windows: Windows | None = None
        self.machine: Sessions[HeldMessage] = Sessions(
            budget,
            settled,
            lock_duration_ms=queue.lock_duration_ms,
            max_delivery_count=queue.max_delivery_count,
        )
        self._departure = services.departure
        self._locks = services.locks
        self._counters = services.counters
        self._record = services.settlements.of(names.active_queue(queue.path)).left_active
        self._tell = tell
        self._active_exchange = names.active_exchange(queue.front)
        self._reader = reader_of(queue)
        self._modes: dict[Key, bool] = {}
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(lambda: self._do(self.machine.tick(now_ms())))

    def __repr__(self) -> str:
        return f"SessionMessages({self.path}, {self.machine!r})"

    def update(self, queue: model.ReceiveEntity) -> None:
        """Take over a changed definition."""
        self.queue, self._reader = queue, reader_of(queue)
        self.machine.lock_duration_ms = queue.lock_duration_ms
        self.machine.max_delivery_count = queue.max_delivery_count

    def lose(self) -> None:
        """RabbitMQ has taken everything back, or does: all locks end."""
        windows, self.windows = self.windows, None
        if windows is not None:
            windows.close()
        self.stop()
        self._locks.lose_owner(self)
        self._modes.clear()
        for effect in self.machine.clear():
            if isinstance(effect, fx.Lost):
                self._tell(_key(effect.receiver), events.Lost(has_moved=True))

    def stop(self) -> None:
        """Wake no more."""
        self._alarm.stop()

    def sweep(self) -> Any:
        """End what has expired, a session a step."""
        for effects in self.machine.sweep(now_ms=now_ms()):
            self._do(effects)
            yield

    def refresh(self, at_most: int) -> bool:
        """Publish old messages again; return whether there were any."""
        effects = self.machine.refresh(at_most, now_ms=now_ms())
        self._do(effects)
        return bool(effects)

    # What receivers want.

    def accept(self, key: Key, session_id: str | None, *, deletes: bool) -> None:
        """A receiver wants a session, or (`None`) the next one."""
        self._modes[key] = deletes
        self._do(self.machine.accept(key, session_id, now_ms=now_ms()))

    def add_credit(self, key: Key, count: int) -> None:
        """A receiver wants `count` more messages."""
        self._do(self.machine.add_credit(key, count, now_ms=now_ms()))

    def drain(self, key: Key) -> None:
        """A receiver wants no more for now."""
        self.machine.drain(key)

    def close(self, key: Key, *, unused: bool) -> None:
        """A receiver gives up its session, or its wait; `unused`: no client has had it."""
        self._modes.pop(key, None)
        self._do(self.machine.close(key, unused=unused, now_ms=now_ms()))

    def knows(self, key: Key) -> bool:
        """Whether a receiver has a session, or waits for one."""
        return key in self._modes

    def forget_bridge(self, instance: bytes) -> list[Key]:
        """A bridge is gone: so are its receivers; return these."""
        gone = [key for key in self._modes if key[0] == instance]
        for key in gone:
            self.close(key, unused=False)
        return gone

    def withdraw(self, key: Key) -> list[Key]:
        """A receiver's bridge does not hear of its session; return who has and awaits none now.

        Whoever else waits there hears no more; what others there hold is theirs.
        """
        holders = set(self.machine.holders)
        gone = [each for each in self._modes if each[0] == key[0] and each not in holders]
        if key in holders:
            gone.append(key)
        for each in gone:
            self.close(each, unused=True)
        return gone

    def renew(self, session_id: str) -> int:
        """Return a session's new end (UTC ms).

        Raises:
            SessionLockLost: nobody holds it.
        """
        renewed = self.machine.renew(session_id, now_ms=now_ms())
        if renewed is None:
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        for place in renewed[1]:
            if place.lock is not None:
                self._locks.renew(place.lock)
        self._alarm.set(self.machine.due_ms())
        return renewed[0]

    def check(self, session_id: str) -> None:
        """Raise SessionLockLost unless somebody holds a session."""
        if not self.machine.is_held(session_id, now_ms=now_ms()):
            raise SessionLockLost(texts.SESSION_LOCK_LOST)

    def take(self, session_id: str) -> HeldMessage | None:
        """Take the next message that waits in a session, or `None` when its body is not here."""
        effects, place = self.machine.take(session_id, now_ms=now_ms())
        self._do(effects)
        return None if place is None else _message(place)

    def put_back(self, holding: HeldMessage) -> None:
        """A message that was taken waits again, first in its session."""
        place = self._place(holding)
        if place is not None:
            self._do(self.machine.released(place, now_ms=now_ms()))

    # What settling needs (`owner.Owner`).

    def holds(self, holding: HeldMessage) -> bool:
        """Whether RabbitMQ still counts on this process to settle a message."""
        return self.windows is not None and self.windows.holds(holding.channel)

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Settle a message for good."""
        self.departing(holding)
        holding.channel.consumers.ack(holding.tag)
        reach(point, holding.channel)

    def departing(self, holding: HeldMessage) -> None:
        """A message is about to be settled, or handed over."""
        place = self._place(holding)
        if place is not None:
            self.machine.leaving(place)

    def stayed(self, holding: HeldMessage) -> None:
        """A message that was about to be handed over was not."""
        place = self.machine.find(holding.identity)
        if place is None:
            return
        where = holding.channel, holding.tag
        effects = self.machine.stayed(place, where, now_ms=now_ms())
        if effects is not None:
            token = place.lock
            self._loop.call_soon(self._end_lock, token)  # it is put back meanwhile
            self._do(effects)

    def putting_back(self, holding: HeldMessage, generation: int) -> None:
        """A message is about to be published into its queue again."""
        place = self._place(holding)
        if place is not None:
            self.machine.returning(place, now_ms=now_ms())

    def give_back(self, holding: HeldMessage, point: str) -> None:
        """A message was abandoned, or its lock has ended: one more on its count."""
        place = self._place(holding)
        # The session's lock may have ended in the same instant, and that was counted.
        if place is not None and place.state == OUT:
            self._do([self.machine.fail(place, now_ms=now_ms())])

    def release(self, holding: HeldMessage) -> None:
        """Make a message available again without counting."""
        place = self._place(holding)
        if place is not None and place.state == OUT:
            self._do(self.machine.released(place, now_ms=now_ms()))

    def left(self, holding: HeldMessage, how: Left) -> None:
        """A message has left the queue, or is to come again."""
        if how is Left.REPLACED:
            return
        place = self._place(holding)
        self._record(holding.number)
        if place is not None:
            self._do(self.machine.left(place, is_settled=how is Left.SETTLED))

    # Messages that come.

    def arrived(self, delivery: Delivery) -> None:
        """RabbitMQ has brought a message."""
        self.arrivals += 1
        try:
            holding = read(delivery, 0, can_expire=True, reader=self._reader)
        except Exception as error:
            text = f"The message cannot be handled: {type(error).__name__}: {error}"
            self.refuse(delivery, text)
            return
        holding.failures = holding.generation
        if not holding.has_come_through(self._active_exchange):
            self._departure.send_back(self, holding)
            return
        place = place_of(holding)
        if place is None:
            self._departure.end(self, holding, NO_SESSION_REASON, NO_SESSION_DESCRIPTION)
            return
        effects = self.machine.arrived(place, now_ms=now_ms())
        if effects:
            self._do(effects)

    def refuse(self, delivery: Delivery, error: str) -> None:
        """Have a message made a dead letter that came where it does not belong."""
        self._departure.poison.note("session", self.resource, error)
        self._departure.refuse(self, unreadable(delivery, 0), MALFORMED_MESSAGE, error)

    # Effects.

    def _do(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            self._carry_out(effect)
        self._alarm.set(self.machine.due_ms())

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Deliver(receiver, place, until_ms):
                self._deliver(_key(receiver), place, until_ms)
            case fx.Given(receiver, session_id, until_ms):
                self._tell(_key(receiver), events.Given(session_id, until_ms))
            case fx.Refused(receiver):
                self._modes.pop(_key(receiver), None)
                self._tell(_key(receiver), events.Refused())
            case fx.Lost(receiver):
                self._modes.pop(_key(receiver), None)
                self._counters.locks_expired += 1
                self._tell(_key(receiver), events.Lost(has_moved=False))
            case fx.Unlock(place):
                self._end_lock(place.lock)
            case fx.Count(place):
                self._end_lock(place.lock)
                self._departure.expire_lock(self, _message(place))
            case fx.Expire(place):
                self._end_lock(place.lock)
                self._departure.expire(self, _message(place))
            case fx.DeliveryCountExceeded(place):
                self._end_lock(place.lock)
                self._departure.dead_letter_failed(self, _message(place))
            case fx.Fetch(place):
                channel, tag = place.where
                channel.consumers.nack(tag)
                reach("engine.session.returned", channel)
            case fx.Refresh(place):
                self._departure.refresh(self, _message(place))
            case fx.Drop(where):
                channel, tag = where
                self._departure.note_second_copy()
                if self.windows is not None and self.windows.holds(channel):
                    channel.consumers.ack(tag)
                    reach("engine.drop.acked", channel)
            case _:
                assert_never(effect)

    def _deliver(self, key: Key, place: Place[HeldMessage], session_until_ms: int) -> None:
        holding = place.message
        assert holding is not None
        self._counters.delivered += 1
        if self._modes.get(key, False):
            self.ack(holding, "engine.receive_and_delete.acked")
            self.left(holding, Left.SETTLED)
            self._counters.received_and_deleted += 1
            self._tell(key, events.Message(holding.received()))
            return
        # LockDuration may have been made shorter since: the session's lock is the longer one then.
        duration_ms = max(self.queue.lock_duration_ms, session_until_ms - now_ms())
        token, until_ms = self._locks.acquire(self, holding, duration_ms)
        place.lock = token
        received = holding.received(lock_token=token, locked_until_ms=until_ms)
        self._tell(key, events.Message(received))

    def _end_lock(self, token: UUID | None) -> None:
        if token is not None:
            self._locks.release(token)

    def _place(self, holding: HeldMessage) -> Place[HeldMessage] | None:
        place = self.machine.find(holding.identity)
        if place is None or place.where != (holding.channel, holding.tag):
            return None
        return place


def _key(receiver: Any) -> Key:
    return receiver  # type: ignore[no-any-return]


def _message(place: Place[HeldMessage]) -> HeldMessage:
    assert place.message is not None, "only what has its body leaves"
    return place.message
