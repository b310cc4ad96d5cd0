"""A lane: one receiver, the machine of its hand-over, and the tasks that do what it wants."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from bridge.background.tasks import Tasks
from bridge.relay.machine.allowance import Allowance
from bridge.relay.machine.effects import (
    Arrival,
    Complete,
    DeadLetter,
    Effect,
    Ended,
    Release,
    Renew,
    Send,
)
from bridge.relay.machine.entity_order import LOOK_MS
from bridge.relay.machine.hand_over import HandOver
from bridge.relay.machine.hand_over_rules import HandOverRules
from bridge.relay.running.judgement import InHand, Judgement, again
from bridge.relay.running.lock_renewal import LockRenewal
from bridge.relay.running.session_lock import SessionLock
from bridge.relay.running.source_order import SourceOrder
from bridge.relay.running.status import RouteState, RouteStatus
from bridge.remote import outcomes
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import (
    RemoteBusy,
    RemoteError,
    RemoteLockLost,
)
from bridge.remote.management import RemoteManagement
from bridge.remote.patience import BUSY_S
from bridge.remote.receiver import RemoteReceiver

log = logging.getLogger("busbridge.relay")

WAIT_S = 30.0
"""How long one call of `receive` waits for a message."""

SOURCE_WAIT_S = 0.2
SOURCE_WAIT_MAX_S = 5.0
"""The first and the longest pause before a source that does not give messages is asked again."""

LOOK_S = LOOK_MS / 1000
"""How often an order is looked at while a message is awaited that comes before others."""

AWAITED_S = 1.0
"""From when on that is said: what has come back to a source may come a little later."""


class Lane:
    """Hands the messages of one receiver over, until it is stopped or cannot go on.

    Args:
        allowance: what all lanes of the route may send together.
        order: the lock of the order, in a lane that keeps that of an entity.
        source_order: whether what comes may be taken, in such a lane.
        session: the lock of the session that the receiver has accepted, if it has.
        idle_s: a session that has had no message for so long is left; `None`: never.
    """

    def __init__(
        self,
        receiver: RemoteReceiver,
        management: RemoteManagement,
        rules: HandOverRules,
        judgement: Judgement,
        status: RouteStatus,
        *,
        allowance: Allowance | None = None,
        order: SessionLock | None = None,
        source_order: SourceOrder | None = None,
        session: SessionLock | None = None,
        idle_s: float | None = None,
    ) -> None:
        self._receiver = receiver
        self._judgement = judgement
        self._status = status
        self._source_order = source_order
        self._awaited, self._awaited_since_s = "", 0.0
        self._idle_s = idle_s
        self._session = session
        leases = [each.lease for each in (order, session) if each is not None]
        self._machine = HandOver(rules, status.now_ms(), allowance, leases)
        self._in_hand: dict[int, InHand] = {}
        self._renewal = LockRenewal(
            *(management, self._machine, self._locked),
            lost=self._lost,
            on_told=self._turn,
            now_ms=status.now_ms,
        )
        self._key = 0
        self._has_room = asyncio.Event()
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[Ended] = self._loop.create_future()
        self._source_failures = 0

    def __repr__(self) -> str:
        return f"<Lane {self._receiver!r} {self._machine!r}>"

    async def run(self) -> Ended:
        """Hand messages over; return why it has ended, when nothing is in hand any more."""
        self._status.holds(self._machine)
        self._turn()
        self._start(self._read())
        if self._session is not None:
            self._start(self._follow_lock(self._session))
        try:
            return await self._over
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._tasks.cancel()
            self._status.let_go(self._machine)

    def stop(self) -> None:
        """Finish what is under way, give back the rest, and end."""
        self._machine.stop(self._now_ms())
        self._turn()

    def _now_ms(self) -> int:
        return self._status.now_ms()

    # -- receiving

    async def _read(self) -> None:
        while not self._machine.is_ending:
            if not await self._make_room():
                continue
            try:
                wait_s = WAIT_S if self._idle_s is None else self._idle_s
                wait_s = LOOK_S if self._machine.early else wait_s
                found = await self._receiver.receive(self._machine.room, wait_s, more_s=0)
            except RemoteError as error:
                if not await self._source_failed(error):
                    return
                continue
            if self._source_failures:
                self._source_failures = 0
                self._show()
            if found:
                self._take(found)
            elif self._idle_s is not None and not self._in_hand:
                self.stop()
            if self._machine.early or self._awaited:
                await self._admit()

    async def _make_room(self) -> bool:
        """Wait for room, and return whether there is any.

        Where all is taken by messages that are early, one is given back from time to time: what
        they wait for comes in its place.
        """
        machine = self._machine
        if machine.room:
            return True
        self._has_room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S if machine.early else None):
                await self._has_room.wait()
        if machine.early and not machine.room:
            await self._admit()
            machine.give_room(self._now_ms())
            self._turn()
        return bool(machine.room)

    def _take(self, found: Sequence[RemoteDelivery]) -> None:
        """Take messages; in an entity's order they are early until it is known what comes next."""
        now_ms = self._now_ms()
        arrivals: list[Arrival] = []
        for each in found:
            self._key += 1
            arrival, self._in_hand[self._key] = self._judgement.of(
                each, self._key, now_ms, is_session=self._session is not None
            )
            arrivals.append(arrival)
        self._machine.arrive(arrivals, now_ms, is_early=self._source_order is not None)
        self._turn()

    async def _admit(self) -> None:
        """Let early messages go on that come next; the others wait, and their locks are renewed."""
        early = self._machine.early
        assert self._source_order is not None
        try:
            ready, awaited = await self._source_order.next_of(
                lambda: [each.arrival.number for each in early.values()]
            )
        except RemoteError as error:
            ready, awaited = [], f"what stands before others is not known: {error}"
        keys = {each.arrival.number: key for key, each in early.items()}
        self._machine.admit([keys[each] for each in ready], self._now_ms())
        if awaited != self._awaited:
            self._awaited, self._awaited_since_s = awaited, self._loop.time()
        self._turn()

    async def _source_failed(self, error: RemoteError) -> bool:
        """Wait before the source is asked again; return whether it makes sense."""
        self._status.failed(error)
        text = f"the source: {error}"
        if self._session is not None:
            self._machine.source_lost(text, self._now_ms())
        elif self._machine.rules.is_ordered or not error.retryable:
            self._machine.begin_again(text, self._now_ms())
        else:
            self._source_failures += 1
            self._show()
            wait_s = SOURCE_WAIT_S * 2 ** min(self._source_failures - 1, 10)
            log.warning("relay.source-away route=%s error=%s", self._status.name, error)
            await asyncio.sleep(min(wait_s, SOURCE_WAIT_MAX_S))
            return True
        self._turn()
        return False

    async def _follow_lock(self, session: SessionLock) -> None:
        cause = await session.lost()
        self._machine.source_lost(f"the source: {cause}", self._now_ms())
        self._turn()

    # -- what the machine wants

    def _turn(self) -> None:
        """Do what the machine wants now, and look again when something is due."""
        machine = self._machine
        while effects := machine.take_effects():
            for effect in effects:
                self._do(effect)
        if machine.room or machine.is_ending:
            self._has_room.set()
        self._show()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._now_ms()
        due_ms = machine.due_ms(now_ms)
        if due_ms is not None:
            self._timer = self._loop.call_later(max(due_ms - now_ms, 1) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._machine.tick(self._now_ms())
        self._turn()

    def _show(self) -> None:
        """Say what the route does."""
        if self._machine.is_ending:
            return
        if self._machine.attempts.failing_since_ms is not None:
            status, cause = self._status, self._machine.attempts.cause
            if status.state is not RouteState.TARGET_AWAY:
                log.warning("relay.target-away route=%s error=%s", status.name, cause)
            status.state = RouteState.TARGET_AWAY
            status.failed(cause)
        elif self._source_failures:
            self._status.state = RouteState.SOURCE_AWAY
        elif self._awaited and self._loop.time() >= self._awaited_since_s + AWAITED_S:
            if self._status.state is not RouteState.AWAITING:
                log.warning("relay.awaiting route=%s error=%s", self._status.name, self._awaited)
            self._status.state = RouteState.AWAITING
            self._status.failed(self._awaited)
        else:
            self._status.state = RouteState.RUNNING

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(batch, keys):
                self._send(batch, keys)
            case Complete(keys):
                self._start(self._settle(keys, outcomes.Complete()))
            case Release(keys):
                self._start(self._settle(keys, outcomes.Release()))
            case DeadLetter(keys, reason, description):
                self._start(self._settle(keys, outcomes.DeadLetter(reason, description)))
            case Renew(keys):
                self._start(self._renewal.renew(keys))
            case Ended():
                if not self._over.done():
                    self._over.set_result(effect)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(self._guarded(work), name=f"relay {self._status.name}")

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do a part of the work; what goes wrong in it ends the lane, and nothing waits for it."""
        try:
            await work
        except Exception as error:
            if self._over.done():
                raise
            self._over.set_exception(error)

    def _send(self, batch: int, keys: tuple[int, ...]) -> None:
        now_ms = self._now_ms()
        over = [each for each in keys if not again(self._in_hand[each], now_ms)]
        if over:
            self._in_hand[over[0]].status.expired += len(over)
            self._machine.withdraw(batch, over, now_ms)
            keys = tuple(each for each in keys if each not in over)
        if keys:
            self._start(self._sent(batch, [self._in_hand[each] for each in keys]))

    async def _sent(self, batch: int, messages: list[InHand]) -> None:
        outlet = messages[0].outlet
        assert outlet is not None
        outcome = await outlet.send(
            [
                (each.message, each.number, each.enqueued_ms)
                for each in messages
                if each.message is not None
            ]
        )
        self._machine.sent(batch, outcome, self._now_ms())
        self._turn()

    async def _settle(self, keys: tuple[int, ...], outcome: outcomes.RemoteOutcome) -> None:
        """Settle messages; what the source does not confirm comes again."""
        settled = [self._in_hand.pop(each) for each in keys]
        is_sure = True
        try:
            await self._receiver.settle_all([each.delivery for each in settled], outcome)
        except RemoteError as error:
            is_sure = False
            if not isinstance(outcome, outcomes.Release):
                await self._settle_again(settled, outcome, error)
        self._machine.settled(keys, self._now_ms(), is_sure=is_sure)
        self._turn()

    async def _settle_again(
        self,
        messages: Sequence[InHand],
        outcome: outcomes.RemoteOutcome,
        error: RemoteError,
    ) -> None:
        """Settle one by one, by their locks, what a source has not taken that was busy."""
        if isinstance(error, RemoteBusy):
            await asyncio.sleep(max(error.pause_s, BUSY_S))
            for each in messages:
                try:
                    await self._receiver.settle(each.delivery, outcome)
                except RemoteLockLost:
                    continue  # most of them: the first attempt has settled it
                except RemoteError as failed:
                    error = failed
                    break
            else:
                return
        for each in messages:
            each.status.incomplete += 1
        log.warning("relay.not-settled route=%s error=%s", self._status.name, error)

    async def _let_go(self, keys: Iterable[int]) -> None:
        """Settle at the link what is not locked any more, so that it takes no credit."""
        found = [self._in_hand.pop(each, None) for each in keys]
        with suppress(RemoteLockLost):
            await self._receiver.settle_all(
                [each.delivery for each in found if each is not None], outcomes.Release()
            )

    def _locked(self, key: int) -> RemoteDelivery | None:
        found = self._in_hand.get(key)
        return None if found is None else found.delivery

    async def _lost(self, key: int) -> None:
        """Tell that a lock has ended: what is not under way any more is let go."""
        self._machine.lock_lost((key,), self._now_ms())
        if key not in self._machine:
            await self._let_go((key,))
