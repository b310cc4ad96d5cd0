"""One run of a route: its links, its lanes, and what watches over them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from bridge.model.name import SubQueue, parse_path
from bridge.relay.machine.allowance import Allowance
from bridge.relay.machine.effects import Ended, Ending
from bridge.relay.machine.hand_over_rules import HandOverRules
from bridge.relay.plan.choice import chain
from bridge.relay.plan.route import Place, RelayFile, Route
from bridge.relay.plan.source_identity import lock_name, source_name
from bridge.relay.running.errors import RouteEnded, RouteRefused, SessionTaken, StateRefused
from bridge.relay.running.held_sessions import HeldSessions
from bridge.relay.running.judgement import Judgement
from bridge.relay.running.lane import Lane
from bridge.relay.running.namespaces import Namespaces
from bridge.relay.running.outlet import Outlet, SourceNumbers
from bridge.relay.running.session_lock import CANNOT_BE_LOCKED, SessionLock, accepted
from bridge.relay.running.session_state import PAGE, move_state, stated_sessions
from bridge.relay.running.source_order import SourceOrder
from bridge.relay.running.status import RouteState, RouteStatus
from bridge.relay.running.watch import Watch
from bridge.remote.errors import RemoteError, RemoteLockLost, RemoteRefused, RemoteTimeout
from bridge.remote.management import RemoteManagement
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.receiver import RemoteReceiver
from bridge.remote.session_receiver import RemoteSessionReceiver

log = logging.getLogger("busbridge.relay")

LAG_S = 900.0
"""How old it is what a target is told to forget: bytes of a process that was killed may be under
way for so long (Azure's longest operation and TCP's retransmissions are shorter)."""

SESSION_WAIT_S = 30.0
"""How long one call waits for the next session."""

SESSION_IDLE_S = 0.5
"""A session without a message for so long is left to the next one."""

SESSION_CREDIT_MIN = 10

STATES_S = 30.0
"""How often states are looked for of sessions that have no messages."""

STATES_SKEW_MS = 300_000
"""How much slower the source's clock may be than this one."""

NOT_ALLOWED = "amqp:not-allowed"

STOP_S = 20.0
"""How long a stop waits for what is under way."""


Result = TypeVar("Result")


class RouteRun:
    """One run of a route; `run` returns when it was stopped, and raises otherwise.

    Args:
        route: with one source and one target.
        file: for routes that `else` leads to, and for the control queue.
        lag_s: see `LAG_S`.
    """

    def __init__(
        self,
        route: Route,
        file: RelayFile,
        namespaces: Namespaces,
        status: RouteStatus,
        *,
        lag_s: float = LAG_S,
    ) -> None:
        self._route = route
        self._file = file
        self._namespaces = namespaces
        self._status = status
        self._numbers = SourceNumbers(int(lag_s * 1000), lambda: status.numbers, status.now_ms)
        self._allowance = Allowance(route.rate_per_s, status.now_ms())
        self._lanes: set[Lane] = set()
        self._outlets: dict[str, Outlet] = {}
        self._order: SessionLock | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Finish what is under way, give back the rest, and return."""
        self._stopping.set()
        for each in list(self._lanes):
            each.stop()

    async def run(self) -> None:
        """Hand messages over.

        Raises:
            RouteEnded: the run cannot go on, or a side refuses the link; another one may.
            RouteRefused: the target refuses a message for good, and the route says to stop.
            RemoteError: the control queue refuses the link, or a session's link is refused.
        """
        self._status.state = RouteState.STARTING
        async with AsyncExitStack() as stack:
            source = self._namespaces.of(self._route.source.side)
            await self._open_outlets(stack)
            if self._route.order == "entity":
                await self._hold_order(stack)
            if self._stopping.is_set():
                return
            judgement = Judgement(self._route, self._file, self._outlets, self._status)
            watch = Watch(_managements(source, self._route.source), self._numbers, self._status)
            try:
                works = await self._works(stack, source, judgement)
            except RemoteError as error:
                raise RouteEnded(f"The source {self._route.source}: {error}") from error
            watches = [watch.run()]
            if self._order is not None:
                watches.append(self._until_lost(self._order))
            await self._until_one_ends(watches, works)

    async def _open_outlets(self, stack: AsyncExitStack) -> None:
        """Attach the senders first: as long as the target is away nothing is locked."""
        place = self._route.source
        name = source_name(place.side.id, place.path)
        for each in chain(self._file, self._route):
            namespace = self._namespaces.of(each.target.side)
            outlet = Outlet(namespace, each.target.path, name, self._numbers)
            try:
                await outlet.open()
            except RemoteError as error:
                raise RouteEnded(f"The target {each.target}: {error}") from error
            stack.push_async_callback(outlet.close)
            self._outlets[each.name] = outlet

    async def _hold_order(self, stack: AsyncExitStack) -> None:
        control = self._file.control
        assert control is not None

        def on_standing_by() -> None:
            self._status.state = RouteState.STANDING_BY

        name = lock_name(self._route.source.side.id, self._route.source.path)
        namespace = self._namespaces.of(control.side)
        session = await self._unless_stopped(
            accepted(namespace, control.path, name, on_standing_by)
        )
        if session is not None:
            self._order = self._lock_of(session)
            stack.push_async_callback(self._order.release)

    def _lock_of(self, session: RemoteSessionReceiver) -> SessionLock:
        return SessionLock(session, self._status.now_ms, self._status.failed)

    async def _until_lost(self, order: SessionLock) -> None:
        raise RouteEnded(f"The lock of the route's order has ended: {await order.lost()}")

    async def _unless_stopped(
        self, work: Coroutine[Any, Any, Result], *enders: Coroutine[Any, Any, object]
    ) -> Result | None:
        """Return the result of what may last; `None` after a stop, or when an ender has ended."""
        waiting = asyncio.ensure_future(work)
        ending = [asyncio.ensure_future(each) for each in (self._stopping.wait(), *enders)]
        try:
            await asyncio.wait((waiting, *ending), return_when=asyncio.FIRST_COMPLETED)
            return await waiting if waiting.done() else None
        finally:
            for each in (waiting, *ending):
                each.cancel()
            await asyncio.gather(waiting, *ending, return_exceptions=True)

    # -- lanes

    async def _works(
        self, stack: AsyncExitStack, source: RemoteNamespace, judgement: Judgement
    ) -> list[Coroutine[Any, Any, None]]:
        """Attach a receiver; return the work of its lane, or of the sessions' lanes."""
        route, path = self._route, self._route.source.path
        source_order = None
        if route.order == "entity":
            source_order = SourceOrder(
                source.management_of(path),
                self._status.now_ms,
                expires=not route.source.is_dead_letter,
            )
        try:
            receiver = await source.receiver(
                path, credit=route.credit, until_settled=True, once=route.order == "entity"
            )
        except RemoteRefused as error:
            if error.condition != NOT_ALLOWED or "session" not in error.description.lower():
                raise
            self._status.state = RouteState.RUNNING
            held = HeldSessions(self._status, self._moved_state)
            stack.push_async_callback(held.close)
            works = [self._sessions(source, judgement, held) for _ in range(route.sessions_at_once)]
            return [*works, self._idle_states(source)] if route.states else works
        stack.push_async_callback(receiver.close)
        rules = self._rules(is_ordered=route.order == "entity", credit=route.credit)
        lane = self._lane_of(receiver, judgement, rules, source_order=source_order)
        return [self._lane(lane)]

    def _lane_of(
        self, receiver: RemoteReceiver, judgement: Judgement, rules: HandOverRules, **options: Any
    ) -> Lane:
        source = self._route.source
        management = self._namespaces.of(source.side).management_of(source.path)
        return Lane(
            receiver, management, rules, judgement, self._status,
            allowance=self._allowance, order=self._order, **options,
        )  # fmt: skip

    def _rules(self, *, is_ordered: bool, credit: int) -> HandOverRules:
        route = self._route
        return HandOverRules(
            is_ordered=is_ordered,
            credit=credit,
            bytes_max=min(each.batch_bytes_max for each in self._outlets.values()),
            outage_ms=int(route.outage_s * 1000),
            rate_per_s=route.rate_per_s,
            dead_letters_refused=route.on_refused == "dead-letter",
        )

    async def _lane(self, lane: Lane) -> None:
        ended = await self._ended(lane)
        if ended.ending is not Ending.STOPPED:
            raise _error(ended)

    async def _ended(self, lane: Lane) -> Ended:
        self._lanes.add(lane)
        if self._stopping.is_set():
            lane.stop()
        try:
            return await lane.run()
        finally:
            self._lanes.discard(lane)

    async def _sessions(
        self, source: RemoteNamespace, judgement: Judgement, held: HeldSessions
    ) -> None:
        """Hand one session over after the other."""
        route = self._route
        credit = max(SESSION_CREDIT_MIN, route.credit // route.sessions_at_once)
        rules = self._rules(is_ordered=True, credit=credit)
        while not self._stopping.is_set():
            accepting = source.session_receiver(
                route.source.path, max_wait_s=SESSION_WAIT_S, credit=credit, until_settled=True
            )
            try:
                receiver = await self._unless_stopped(accepting)
            except RemoteTimeout:
                if not self._lanes:
                    self._status.state = RouteState.RUNNING
                continue
            if receiver is None:
                return
            session = self._lock_of(receiver)
            is_held = False
            try:
                if route.states and not await self._moved_state(receiver, session):
                    continue
                lane = self._lane_of(
                    receiver, judgement, rules, session=session, idle_s=SESSION_IDLE_S
                )
                ended = await self._ended(lane)
            except StateRefused as error:
                is_held = True
                await held.hold(receiver, session, error)
                continue
            finally:
                if not is_held:
                    await session.release()
            if ended.ending in (Ending.OUTAGE, Ending.REFUSED):
                raise _error(ended)

    async def _idle_states(self, source: RemoteNamespace) -> None:
        """Move the states of sessions to which no message leads, until a stop."""
        management = source.management_of(self._route.source.path)
        left: set[str] = set()
        since_ms = 0
        while not self._stopping.is_set():
            asked_ms = self._status.now_ms()
            try:
                found = await stated_sessions(management, since_ms)
                left.update(found)
                if len(found) < PAGE:  # else some may have moved up into a page before theirs
                    since_ms = max(0, asked_ms - STATES_SKEW_MS)
                for each in sorted(left):
                    if self._stopping.is_set():
                        return
                    if await self._moved_idle_state(source, each):
                        left.discard(each)
            except RemoteError as error:
                self._status.failed(error)
            await self._unless_stopped(asyncio.sleep(STATES_S))

    async def _moved_idle_state(self, source: RemoteNamespace, session_id: str) -> bool:
        """Move a session's state; return whether it is: somebody may have the session locked.

        What the target refuses for good stays, and is told.
        """
        try:
            receiver = await source.session_receiver(self._route.source.path, session_id)
        except RemoteError as error:
            if error.condition == CANNOT_BE_LOCKED:
                return False
            raise
        lock = self._lock_of(receiver)
        try:
            if is_moved := await self._moved_state(receiver, lock, waits=False):
                self._status.let_on(session_id)
            return is_moved
        except SessionTaken:
            return False
        except StateRefused as error:
            self._status.hold_up(session_id, str(error))
            return False
        except RemoteRefused as error:
            self._status.failed(error)
            return False
        finally:
            await lock.release()

    async def _moved_state(
        self, source: RemoteSessionReceiver, lock: SessionLock, *, waits: bool = True
    ) -> bool:
        """Move a session's state; return whether its messages may follow now.

        Args:
            waits: for the target's session, if another has it.

        Raises:
            SessionTaken: another has it, and it is not to be waited for.
            StateRefused: the target refuses it for good.
        """
        route, status = self._route, self._status

        def on_locked() -> None:
            if not waits:
                raise SessionTaken
            text = f"the session {source.session_id!r} is locked at {route.target}"
            log.warning("relay.session-locked route=%s error=%s", status.name, text)
            status.failed(text)

        target = self._namespaces.of(route.target.side)
        moving = move_state(source, target, route.target.path, on_locked)
        try:
            async with asyncio.timeout(route.outage_s):
                return bool(await self._unless_stopped(moving, lock.lost()))
        except RemoteLockLost as error:
            status.failed(error)
        except TimeoutError:
            pass  # it is given back, and comes again
        return False

    async def _until_one_ends(
        self,
        watches: list[Coroutine[Any, Any, None]],
        lanes: list[Coroutine[Any, Any, None]],
    ) -> None:
        """Run all until each lane has returned after a stop, or one has failed; stop the others."""
        watching = [asyncio.ensure_future(each) for each in watches]
        handing_over = [asyncio.ensure_future(each) for each in lanes]
        stopping = asyncio.ensure_future(self._stopping.wait())
        tasks = [*watching, *handing_over, stopping]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            await asyncio.wait(handing_over, timeout=STOP_S)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for each in (*watching, *handing_over):
            if not each.cancelled() and (error := each.exception()) is not None:
                raise error


def _error(ended: Ended) -> Exception:
    if ended.ending is Ending.REFUSED:
        return RouteRefused(f"The target refuses a message: {ended.cause}")
    if ended.ending is Ending.OUTAGE:
        return RouteEnded(f"The target is away, and what was in hand is given back: {ended.cause}")
    return RouteEnded(f"The hand-over is begun again: {ended.cause}")


def _managements(source: RemoteNamespace, place: Place) -> tuple[RemoteManagement, ...]:
    """Return what can be peeked of a source; of a dead-letter queue the entity itself with it."""
    found = parse_path(place.path)
    own = source.management_of(place.path)
    if found.sub_queue is SubQueue.NONE:
        return (own,)
    return own, source.management_of(found.entity)
