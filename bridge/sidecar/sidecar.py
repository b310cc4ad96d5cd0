"""The sidecar: one leader (or standby) for every entity, restarted when RabbitMQ comes and goes.

Entities share a pool of connections. An entity whose inbox, journal or bucket has given no answer
gets a connection of its own, until it has worked there for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.connection.pool import LOOK_S, ConnectionLease, Pool
from bridge.broker.errors import BrokerError, BrokerSilent, PublishRefused
from bridge.engine.clock import now_ms
from bridge.engine.poison import Poison
from bridge.machine.inbox.standbys import Standbys
from bridge.machine.suspects import Suspect, is_silence
from bridge.machine.usage.idleness import Use, changed
from bridge.model.entity import SendEntity, Tier, Topic
from bridge.sidecar.expired_unnumbered import return_expired
from bridge.sidecar.inbox_choice import InboxChoice
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import Companion, LeaderState, TermOver
from bridge.sidecar.leader.meters import Meters
from bridge.sidecar.leader.routes import Routes
from bridge.sidecar.leaderless import failing_reasons, leaderless_reason
from bridge.sidecar.shared_connection import SharedConnection
from bridge.sidecar.subscriptions.left_out import LOOK_S as LOOK_AT_TOPICS_S
from bridge.sidecar.subscriptions.left_out import LeftOutWatch, silent_subscriptions
from bridge.sidecar.subscriptions.missing_queues import MissingQueues
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.topology.entity_table import Changes

COUNT_S = 1.0
"""How long RabbitMQ may take to count the ready messages of the inboxes."""

STEADY_S = 10.0
"""Time of work on a connection of its own after which an entity returns to a shared connection."""

RESTART_MAX_S = 5.0
"""The longest wait between two terms of a sequencer whose connection still stands."""

FAILURES_MAX = 3
"""Number of failed terms of a sequencer in a row from which on the failure is reported."""

log = logging.getLogger(__name__)


async def _at_once(*entity: str) -> None:
    """Wait for nothing: nobody makes resources again, or reads definitions."""


class Sidecar:
    """Runs the sequencers of a namespace in this process.

    Args:
        on_full: called with an entity's name whenever its queue refuses messages as full; while
            the queue is full the calls are `RESTART_MAX_S` and a term apart at most.
        on_missing: called with an entity's path when a queue, exchange or binding is missing.
        poison: takes note of input that could not be handled.
        companion: additional work for the entities that this process leads.
        supervisor: keeps the leaders running.
        whole, looked: wait for an entity's missing resources, and for a look at all definitions.
        standbys: what is known of the other bridges; of none unless given.

    Attributes:
        choice: the inboxes that this process consumes.
        connected: set when there is a connection to RabbitMQ for the first time.
        pool: the connections.
        routes: the routes of the entities that this process leads.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        tier: Tier = Tier.STANDARD,
        clock: Callable[[], int] = now_ms,
        on_full: Callable[[str], None] = lambda entity: None,
        on_missing: Callable[[str], None] = lambda entity: None,
        poison: Poison | None = None,
        companion: Companion | None = None,
        supervisor: Supervisor | None = None,
        whole: Callable[[str], Awaitable[None]] = _at_once,
        looked: Callable[[], Awaitable[None]] = _at_once,
        standbys: Standbys | None = None,
    ) -> None:
        self.connected = asyncio.Event()
        self._tier = tier
        self._clock = clock
        self._on_full = on_full
        self._on_missing = on_missing
        self.poison = poison or Poison()
        self._companion = companion or Companion()
        self._supervisor = supervisor or Supervisor()
        self._states: dict[str, LeaderState] = {}
        self._leaders: dict[str, Leader] = {}
        self.routes = Routes(self._states, self._leaders, clock)
        standbys = standbys or Standbys(b"alone")
        self.choice = InboxChoice(standbys, self._states, self._leaders, clock)
        self._whole, self._looked = whole, looked
        self._watches: dict[Leader, Sequence[LeftOutWatch | MissingQueues]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.pool = Pool(
            endpoint, name="busbridge sidecar", judges=False, supervisor=self._supervisor
        )
        self._ways: dict[int, SharedConnection] = {}
        self._failing: dict[str, tuple[float, str]] = {}
        self._is_running = False
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to RabbitMQ."""
        return self.connected.is_set() and self.pool.is_up

    @property
    def reasons(self) -> list[str]:
        """Why some sent messages get no number: one sentence for each reason; empty when all do."""
        if not self.is_connected:
            return ["The sidecar has no connection to RabbitMQ; what is sent waits for its number."]
        now_s = asyncio.get_running_loop().time()
        silent = {suspect.name for suspect in self.silent}
        waiting = leaderless_reason(self.leaderless, silent, self._clock())
        return [*([waiting] if waiting else []), *failing_reasons(self._failing, silent, now_s)]

    @property
    def silent(self) -> list[Suspect]:
        """The entities with a queue that gives no answer; all others work.

        They include the left-out subscriptions of topics that this process leads.
        """
        return [*self.pool.suspects.silent, *silent_subscriptions(self.leading)]

    @property
    def leaderless(self) -> dict[str, int]:
        """The entities without a known leader, and since when (UTC ms), the longest first.

        An entity that another process leads is not among them.
        """
        since = [
            (state.leaderless_ms, state.entity.path)
            for state in self._states.values()
            if state.leaderless_ms is not None
        ]
        return {name: at_ms for at_ms, name in sorted(since)}

    @property
    def meters(self) -> dict[str, Meters]:
        """The counters of each entity."""
        return {state.entity.path: state.meters for state in self._states.values()}

    def scheduled(self, entity: str) -> int | None:
        """Return the number of scheduled messages of an entity; None when not led here."""
        state = self._states.get(entity.lower())
        return state.meters.pending if state is not None and state.meters.is_active else None

    def waiting(self, entity: str, number: int, count: int) -> list[int] | None:
        """Return the lowest scheduled sequence numbers from `number` on; None when not led here."""
        state = self._states.get(entity.lower())
        if state is None or state.sequencer is None or not state.meters.is_active:
            return None
        return state.sequencer.memory.pending.after(number, count)

    async def count_ready(self) -> None:
        """Update the meters of arrivals that wait in RabbitMQ, beyond those at hand.

        While RabbitMQ does not answer (an alarm) the meters keep the last count.
        """
        behind = [leader for leader in self._leaders.values() if leader.may_have_more]
        for key, state in self._states.items():
            if self._leaders.get(key) not in behind:
                state.meters.ready = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COUNT_S):
                await asyncio.gather(*(leader.count_ready() for leader in behind))

    @property
    def leading(self) -> list[Leader]:
        """The leaders of this process that are ready."""
        return [leader for leader in self._leaders.values() if leader.is_ready]

    @property
    def entities(self) -> list[SendEntity]:
        """The queues and topics that this process runs leaders or standbys for."""
        return [state.entity for state in self._states.values()]

    def add_entity(self, entity: SendEntity) -> None:
        """Add an entity whose resources are declared, or apply its changed definition."""
        key = entity.path.lower()
        state = self._states.get(key)
        if state is None:
            self._states[key] = LeaderState(
                entity,
                self._tier,
                poison=self.poison,
                companion=self._companion,
                waits=self._supervisor.waits,
            )
            self.choice.add(key)
            self._employ(key)
        else:
            before, state.entity = state.entity, entity
            if before.held and not entity.held and key in self._leaders:
                self._leaders[key].go_on()
            if state.sequencer is not None:
                state.sequencer.update(entity, self._tier)
                uses = state.sequencer.memory.uses
                for each in changed(before, entity):
                    uses.note(entity, each, Use.UPDATE, self._clock())

    def follow(self, changes: Changes) -> None:
        """Add or update changed entities, and drop those that are gone."""
        there = dict(changes.fronts)
        for key in changes.before:
            state, now = self._states.get(key), there.get(key)
            # An entity that was created again is another one: its leader must be new.
            if state is None or (now and incarnation_of(now) == incarnation_of(state.entity)):
                continue
            del self._states[key]
            self.choice.remove(key)
            self._failing.pop(state.entity.path, None)
            self.pool.give_back(state.entity.path)
            if task := self._tasks.pop(key, None):
                task.cancel()
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)
        for entity in there.values():
            self.add_entity(entity)

    async def run(self) -> None:
        """Run all leaders until `stop`, also over losses of connections."""
        self._is_running = True
        self.pool.open()
        try:
            for key in self._states:
                self._employ(key)
            self._tasks[""] = self._supervisor.keep(
                "expired messages", self._return_expired, may_end=self._stopping.is_set
            ).task
            self._tasks["/"] = self._supervisor.keep("topics", self._look_at_topics).task
            self._tasks["//"] = self._supervisor.keep("inboxes", self.choice.run).task
            await self._stopped.wait()
        finally:
            self._is_running = False
            self.connected.clear()
            tasks, self._tasks = list(self._tasks.values()), {}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.pool.close()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    async def stop(self) -> None:
        """Wait for the leaders' unconfirmed publications, and end `run`."""
        self._stopping.set()
        await asyncio.gather(*(leader.stop() for leader in list(self._leaders.values())))
        self._stopped.set()

    def _employ(self, key: str) -> None:
        if self._is_running and key not in self._tasks:
            name = self._states[key].entity.path
            self._tasks[key] = self._keep_leading(name, lambda: self._lead(key))

    async def _look_at_topics(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AT_TOPICS_S)
            failed: Exception | None = None
            for watch in [each for watches in self._watches.values() for each in watches]:
                try:
                    watch.look()
                except Exception as error:
                    failed = error
            if failed is not None:
                raise failed

    async def _return_expired(self) -> None:
        lease = await self.pool.lease(names.EXPIRED_UNNUMBERED)
        self.connected.set()
        await return_expired(lease, self.poison)

    async def _way(self, name: str) -> SharedConnection:
        """Return the shared connection that serves an entity, opened."""
        lease = await self.pool.lease(name)
        self.connected.set()
        for gone in [each for each in self._ways.values() if each.connection.is_closed]:
            del self._ways[id(gone.connection)]
        way = self._ways.get(id(lease.connection))
        if way is None:
            way = self._ways[id(lease.connection)] = SharedConnection(lease.connection)
        await way.open()
        return way

    async def _lead(self, key: str) -> None:
        """Run one term after another; a term may end without a fault, for another prefetch, say."""
        state = self._states[key]
        while not self._stopping.is_set():
            name = state.entity.path
            await self.choice.wanted(key)
            await self._whole(name)
            way = await self._way(name)
            lease = ConnectionLease(way.connection, name)
            made_again = partial(self._made_again, name)
            leader = Leader(state, lease, way, self._clock, made_again, self._looked)
            self._leaders[key] = leader
            self.choice.watch(key, leader)
            steady = None
            if name in self.pool.suspects:
                steady = leader.start(self._return(leader))
            if isinstance(leader.entity, Topic):
                self._watches[leader] = (
                    LeftOutWatch(leader, self.pool.apart, self._clock),
                    MissingQueues(leader, state, lease, self._on_missing, self._clock),
                )
            try:
                await leader.run()
                return
            except PublishRefused as error:
                if await way.is_full(leader.entity, error):
                    # A full queue is no fault: `on_full` has its senders told.
                    state.leaderless_ms = None
                    self._on_full(name)
                else:
                    self.pool.suspect(name, str(error))
                raise
            except TermOver as change:
                log.info("sequencer.over entity=%s text=%s", name, change)
                if steady is not None and steady.done():
                    self.pool.give_back(name)
            except BrokerError as error:
                # A queue that confirms nothing may stop all publishes of its connection. While
                # RabbitMQ has an alarm it answers nothing there, of whatever queue.
                is_silent = isinstance(error, BrokerSilent) and not lease.is_blocked
                if is_silent or is_silence(error.text):
                    self.pool.suspect(name, str(error))
                raise
            finally:
                # An entity that was created again may have its next leader already.
                if self._leaders.get(key) is leader:
                    del self._leaders[key]
                    self.choice.ended(key, leader)
                if steady is not None:
                    steady.cancel()
                for watch in self._watches.pop(leader, ()):
                    await watch.close()

    async def _made_again(self, name: str, error: BrokerError) -> None:
        """Wait while a resource is missing, which an error may say first."""
        if error.is_missing:
            self._on_missing(name)
        await self._whole(name)

    async def _return(self, leader: Leader) -> None:
        """End a suspect's term in order once it has worked for `STEADY_S` on its own connection.

        The next term runs on a shared connection.
        """
        steady_s = 0.0
        while steady_s < STEADY_S:
            await asyncio.sleep(LOOK_S)
            if leader.is_ready:
                self.pool.suspects.answered(leader.name)
                steady_s += LOOK_S
        leader.leave("it goes on over another connection")

    def _keep_leading(self, name: str, lead: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Lead an entity again, after whatever ends that, until the sidecar stops."""

        def failed(error: BaseException, failures: int, wait_s: float) -> None:
            if not isinstance(error, BrokerError):
                log.error("sequencer.failed entity=%s", name, exc_info=error)
            elif not self._stopping.is_set():
                log.warning("sequencer.ended entity=%s error=%s", name, error)
            # A full queue is no fault: `on_full` has its senders told.
            if failures >= FAILURES_MAX and not isinstance(error, PublishRefused):
                now_s = asyncio.get_running_loop().time()
                self._failing[name] = now_s, str(error) or repr(error)

        return self._supervisor.keep(
            "sequencer",
            lead,
            subject=name,
            may_end=self._stopping.is_set,
            pause_max_s=RESTART_MAX_S,
            on_failed=failed,
            is_named=False,
        ).task
