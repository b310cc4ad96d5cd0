"""Runs the machine that takes messages: its links, its tasks, its clock and its undo file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.background.tasks import Tasks
from bridge.commands.clock import now_ms
from bridge.commands.output import Progress
from bridge.commands.taking_sources import TakingSource
from bridge.commands.undo_writing import UndoFile
from bridge.operations.taking import Taking
from bridge.operations.taking_effects import Received, TakingEffect, TakingEnded, Write
from bridge.operations.taking_rules import TakingRules
from bridge.operations.undo_file import Identity, TakenFate, entry_line, identity_of
from bridge.relay.machine.effects import Complete, Release, Renew, Send
from bridge.relay.machine.lease import lock_ms_of
from bridge.relay.running.judgement import number_of
from bridge.relay.running.lock_renewal import LockRenewal
from bridge.relay.running.outlet import OVERHEAD, Outlet
from bridge.relay.running.session_lock import SessionLock
from bridge.remote import outcomes
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteError
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage

ROUND: Final = 250
"""Messages of one call of `receive`."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What becomes of a message.

    Attributes:
        is_wanted: whether it is taken.
        refusal: why it cannot be taken; "" if it can.
        copy: what is sent; `None` where nothing is.
        is_changed: whether the copy says something else, so that the undo file has it, too.
        outcome: how it is settled in the end.
    """

    is_wanted: bool
    refusal: str = ""
    copy: RemoteMessage | None = None
    is_changed: bool = False
    outcome: outcomes.RemoteOutcome = field(default_factory=outcomes.Complete)


Judge = Callable[[RemoteDelivery], Awaitable[Judged]]


class TakingRun:
    """One run of the machine.

    What was enqueued since it began is not taken, but held: what is sent to the source's own entity
    and dies there again would be sent for ever.

    Args:
        judge: says what becomes of each message; it may ask somebody.
        outlet: the way to the target; `None`: messages are only removed.
        undo: where messages are written before they are settled.
        wait_s: for how long no message must come until there are no more.
        lock: that of the receiver's session, which is renewed elsewhere; `None` without one.
        before: the run that took messages of another session before; this one goes on with its
            counts, its rate and the time at which it began.

    Attributes:
        later: number and enqueued time of each that was enqueued since, by our clock.
    """

    def __init__(
        self,
        source: TakingSource,
        management: RemoteManagement,
        rules: TakingRules,
        judge: Judge,
        *,
        outlet: Outlet | None = None,
        undo: UndoFile | None = None,
        wait_s: float,
        progress: Progress,
        lock: SessionLock | None = None,
        before: TakingRun | None = None,
    ) -> None:
        self._began_ms: int = now_ms() if before is None else before._began_ms
        self.machine: Taking = Taking(rules, now_ms(), None if before is None else before.machine)
        self._source = source
        self._judge = judge
        self._outlet = outlet
        self._undo = undo
        self._wait_s = wait_s
        self._progress = progress
        self._lock = lock
        self._in_hand: dict[int, tuple[RemoteDelivery, Judged]] = {}
        self._renewal = LockRenewal(
            *(management, self.machine, self._locked),
            lost=self._lost,
            on_told=self._turn,
            now_ms=now_ms,
        )
        self._written: set[Identity] = set()
        self._key = 0
        self._has_room = asyncio.Event()
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[TakingEnded] = self._loop.create_future()
        self.last_number: int = 0 if before is None else before.last_number
        self.later: set[Identity] = set() if before is None else before.later

    async def run(self, asked: asyncio.Event) -> TakingEnded:
        """Take messages until none come, or it has to end; `asked`: somebody stops it."""
        self._start(self._read())
        if self._lock is not None:
            self._start(self._watch(self._lock))
        self._start(self._stop(asked))
        try:
            return await self._over
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._tasks.cancel()

    async def _stop(self, asked: asyncio.Event) -> None:
        await asked.wait()
        self.machine.stop(now_ms())
        self._turn()

    async def _watch(self, lock: SessionLock) -> None:
        """End when the session is lost."""
        self.machine.source_lost(await lock.lost(), now_ms())
        self._turn()

    # -- receiving

    async def _read(self) -> None:
        machine = self.machine
        waited_s = 0.0
        while not machine.is_ending:
            room = machine.room
            if not room:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            asked_s = self._loop.time()
            try:
                found = await self._source.receive(min(room, ROUND), self._wait_s)
            except RemoteError as error:
                machine.source_lost(str(error), now_ms())
                self._turn()
                return
            waited_s += self._loop.time() - asked_s
            if not all(map(self._is_later, found)):
                waited_s = 0.0
            received = [await self._received(each) for each in found]
            machine.receive(received, now_ms())
            if not found or waited_s >= self._wait_s:
                machine.ran_dry(now_ms())
            self._turn()

    def _is_later(self, delivery: RemoteDelivery) -> bool:
        return int(delivery.message.enqueued_time_ms or 0) >= self._began_ms

    async def _received(self, delivery: RemoteDelivery) -> Received:
        if self._is_later(delivery):
            enqueued_ms = int(delivery.message.enqueued_time_ms or 0)
            self.later.add((number_of(delivery), enqueued_ms))
            judged = Judged(False)
        else:
            judged = await self._judge(delivery)
        self._key += 1
        message, copy = delivery.message, judged.copy
        self.last_number = number_of(delivery) or self.last_number
        self._in_hand[self._key] = delivery, judged
        return Received(
            self._key,
            number_of(delivery),
            int(message.enqueued_time_ms or 0),
            judged.is_wanted,
            judged.refusal,
            group=None if copy is None else (copy.session_id, copy.partition_key),
            is_ordered=copy is not None and copy.session_id is not None,
            size_bytes=0 if copy is None else copy.size_bytes + OVERHEAD,
            lock_ms=0
            if self._lock is not None  # it is renewed for all of them
            else lock_ms_of(int(message.locked_until_ms or 0), now_ms()),
        )

    # -- what the machine wants

    def _turn(self) -> None:
        """Do what the machine wants now, and look again when something is due."""
        machine = self.machine
        while effects := machine.take_effects():
            for effect in effects:
                self._do(effect)
        if machine.room or machine.is_ending:
            self._has_room.set()
        self._progress.advance(machine.account.completed - self._progress.done)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = now_ms()
        due_ms = machine.due_ms(now)
        if due_ms is not None:
            self._timer = self._loop.call_later(max(due_ms - now, 1) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.machine.tick(now_ms())
        self._turn()

    def _do(self, effect: TakingEffect) -> None:
        match effect:
            case Write(batch, keys):
                self._start(self._write(batch, keys))
            case Send(batch, keys):
                self._start(self._send(batch, keys))
            case Complete(keys):
                self._start(self._complete(keys))
            case Release(keys):
                self._start(self._release(keys))
            case Renew(keys):
                self._start(self._renewal.renew(keys))
            case TakingEnded():
                if not self._over.done():
                    self._over.set_result(effect)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(self._guarded(work), name="take")

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do a part of the work; what goes wrong in it ends the run, and nothing waits for it."""
        try:
            await work
        except Exception as error:
            if self._over.done():
                raise
            self._over.set_exception(error)

    async def _write(self, batch: int, keys: Sequence[int]) -> None:
        assert self._undo is not None
        found = [self._in_hand[each] for each in keys]
        try:
            await asyncio.to_thread(
                self._undo.write,
                [
                    entry_line(delivery.message, judged.copy if judged.is_changed else None)
                    for delivery, judged in found
                ],
            )
        except OSError as error:
            text = f"{self._undo.path}: {error.strerror or error}"
            self.machine.unwritten(batch, text, now_ms())
        else:
            self._written.update(identity_of(delivery.message) for delivery, _ in found)
            self.machine.written(batch, now_ms())
        self._turn()

    async def _send(self, batch: int, keys: Sequence[int]) -> None:
        assert self._outlet is not None
        found = [self._in_hand[each] for each in keys]
        outcome = await self._outlet.send(
            [
                (judged.copy, number_of(delivery), int(delivery.message.enqueued_time_ms or 0))
                for delivery, judged in found
                if judged.copy is not None
            ]
        )
        self.machine.sent(batch, outcome, now_ms())
        self._turn()

    async def _complete(self, keys: Sequence[int]) -> None:
        found = [self._in_hand.pop(each) for each in keys]
        results = await asyncio.gather(
            *(self._source.settle(delivery, judged.outcome) for delivery, judged in found),
            return_exceptions=True,
        )
        sure: list[int] = []
        unsure: list[int] = []
        for key, result in zip(keys, results, strict=True):
            if result is not None and not isinstance(result, RemoteError):
                raise result
            (sure if result is None else unsure).append(key)
        removed = [found[at][0] for at, result in enumerate(results) if result is None]
        await self._mark(TakenFate.REMOVED, removed)
        self.machine.settled(sure, now_ms())
        self.machine.settled(unsure, now_ms(), is_sure=False)
        self._turn()

    async def _release(self, keys: Sequence[int]) -> None:
        """Give messages back, each by itself: only one whose link has ended is not sure."""
        is_last = self.machine.is_ending  # else one may come again, to be removed behind its mark
        sure: list[int] = []
        unsure: list[int] = []
        left: list[RemoteDelivery] = []
        for key in keys:
            delivery, _ = self._in_hand.pop(key)
            try:
                await self._source.settle(delivery, outcomes.Release())
            except RemoteError:
                unsure.append(key)
            else:
                sure.append(key)
                left.append(delivery)
        if is_last:
            await self._mark(TakenFate.LEFT, left)
        self.machine.settled(sure, now_ms())
        self.machine.settled(unsure, now_ms(), is_sure=False)
        self._turn()

    async def _mark(self, fate: TakenFate, settled: Sequence[RemoteDelivery]) -> None:
        """Say in the undo file what the source has confirmed of messages that stand there."""
        written = [each for each in settled if identity_of(each.message) in self._written]
        if self._undo is not None and written:
            self._written.difference_update(identity_of(each.message) for each in written)
            await asyncio.to_thread(self._undo.mark, fate, [each.message for each in written])

    def _locked(self, key: int) -> RemoteDelivery | None:
        found = self._in_hand.get(key)
        return None if found is None else found[0]

    async def _lost(self, key: int) -> None:
        """Tell that a lock has ended: the message comes again by itself."""
        self._source.lost(self._in_hand[key][0])
        self.machine.lock_lost((key,), now_ms())
