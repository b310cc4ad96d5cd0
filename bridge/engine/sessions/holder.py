"""Who holds the messages of one session entity: one process, all of them.

The bridge that consumes the queue of states (`Seat`) consumes the entity's own queue too, and
nobody else does. It begins when its predecessor's consumers are gone, and gives nothing to anybody
until all that was in the queue then has come: so the order within a session stays. When one of its
channels ends, it lets go of everything: all sessions are lost, and whoever has the seat begins
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial

from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.counters import Counters
from bridge.engine.receiving.intake import Intake
from bridge.engine.sending.sender import Sender
from bridge.engine.sessions.messages import SessionMessages, Tell
from bridge.engine.sessions.seat import Seat
from bridge.engine.sessions.takeover import take_over
from bridge.engine.sessions.windows import Windows
from bridge.engine.settlement.departure import Departure
from bridge.engine.settlement.locktable import LockTable
from bridge.machine.memory_budget import MemoryBudget
from bridge.machine.settled import SettledMemory
from bridge.model import entity as model

REOPEN_S = 0.5

SWEEP_S = 10.0
"""So often expired messages are looked for that nobody asks for."""

SWEPT_AT_ONCE = 500

REFRESHED_AT_ONCE = 500
REFRESH_S = 0.25
REFRESHES_MAX = 20
"""So many old messages are published again at once, so soon again, so often a sweep: 10,000 in 15
seconds, each of which its session waits for for a moment."""

log = logging.getLogger(__name__)


class Holder:
    """This process as the holder of an entity's sessions, or as one that stands by.

    Args:
        compacts_logs: whether RabbitMQ does, and old messages may stay where they are.
        tell: called with what a receiver is to hear.
        on_ready: called whenever this process has become the holder.

    Attributes:
        messages: what it holds.
        seat: its place in the queue of states, and what is stored there.
        is_ready: whether this process holds the entity's messages, all of them.
        natives: how many consumers of the queue are not this process's.
    """

    def __init__(
        self,
        queue: model.ReceiveEntity,
        *,
        budget: MemoryBudget,
        settled: SettledMemory,
        intake: Intake,
        sender: Sender,
        departure: Departure,
        locks: LockTable,
        counters: Counters,
        compacts_logs: bool,
        tell: Tell,
        on_ready: Callable[[], None],
    ) -> None:
        self._compacts_logs = compacts_logs
        self.is_ready = False
        self.natives = 0
        self.messages = SessionMessages(
            queue,
            budget=budget,
            settled=settled,
            departure=departure,
            locks=locks,
            counters=counters,
            tell=tell,
        )
        self.seat = Seat(
            queue.path,
            intake=intake,
            sender=sender,
            instance=lambda: locks.instance,
            on_active=self._on_active,
            on_lost=self._on_lost,
            on_stray=lambda delivery: self.messages.refuse(delivery, texts.MISPLACED_STATE),
        )
        self._intake = intake
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_been_lost = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"Holder({self.messages!r}, is_ready={self.is_ready})"

    async def stand_by(self) -> None:
        """Be the holder, or the next one; see `Seat.take`."""
        if not self._is_closed:
            await self.seat.take()

    async def end(self) -> None:
        """Let go of everything, in order."""
        self._is_closed = True
        self._cancel()
        self.messages.stop()
        if self.messages.windows is not None:
            await self.messages.windows.closed()
        self.seat.leave()

    def drop(self) -> None:
        """The entity is gone."""
        self._is_closed = True
        self._let_go()
        self.seat.leave()

    def _on_active(self) -> None:
        self._start(self._begin(), "session takeover")

    async def _begin(self) -> None:
        resource = self.messages.resource
        windows = Windows(
            resource,
            self._intake.route(resource),
            on_delivery=self.messages.arrived,
            on_lost=self._on_lost,
        )
        try:
            self.natives = await take_over(
                resource,
                windows,
                intake=self._intake,
                has_been_lost=self._has_been_lost,
                begin=partial(self._begin_with, windows),
                arrived=lambda: self.messages.arrivals,
            )
        except BrokerError as error:
            windows.close()
            self._on_lost(error)
            return
        self.is_ready = True
        self.seat.ready()
        self._on_ready()
        self._start(self._look_after(windows), "session sweep")
        log.info("session.holder messages=%r", self.messages)

    async def _begin_with(self, windows: Windows) -> None:
        self.messages.windows, self.messages.arrivals = windows, 0
        await windows.begin()

    def _on_lost(self, error: BrokerError) -> None:
        """RabbitMQ has taken everything back, or does."""
        log.info("session.lost queue=%s error=%s", self.messages.resource, error)
        self._has_been_lost = True
        self._let_go()
        self.seat.leave()
        if not self._is_closed:
            self._start(self._return(), "session return")

    def _let_go(self) -> None:
        self.is_ready = False
        self._cancel()
        self.messages.lose()

    def _cancel(self) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()

    async def _return(self) -> None:
        """Stand by again, as long as the queue is there."""
        while not self._is_closed:
            await asyncio.sleep(REOPEN_S)
            try:
                await self.stand_by()
                return
            except BrokerError as error:
                log.info("session.waiting queue=%s error=%s", self.seat.resource, error)

    async def _look_after(self, windows: Windows) -> None:
        """End what has expired, renew what is old, and see who else consumes the queue."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for count, _ in enumerate(self.messages.sweep()):
                if count % SWEPT_AT_ONCE == SWEPT_AT_ONCE - 1:
                    await asyncio.sleep(0)
            if not self._compacts_logs:
                await self._refresh()
            try:
                channel = await self._intake.channel()
                state = await channel.declarations.declare_queue(
                    self.messages.resource, passive=True
                )
                await channel.close()
                self.natives = max(state.consumers - windows.consumers, 0)
            except BrokerError as error:
                log.info("session.unseen queue=%s error=%s", self.messages.resource, error)

    async def _refresh(self) -> None:
        """Keep RabbitMQ's log of the queue short (`machine.sessions.ages`)."""
        for _ in range(REFRESHES_MAX):
            if not self.messages.refresh(REFRESHED_AT_ONCE):
                return
            await asyncio.sleep(REFRESH_S)

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
