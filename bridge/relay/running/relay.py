"""The relay: all routes of a file, each under a supervisor."""

from __future__ import annotations

import asyncio
import logging

from bridge.background.supervisor import Standing, Supervisor
from bridge.background.tasks import Tasks
from bridge.relay.entities import sources_at
from bridge.relay.plan.choice import chain
from bridge.relay.plan.expansion import expanded
from bridge.relay.plan.route import RelayFile, Route
from bridge.relay.running.errors import RouteRefused
from bridge.relay.running.namespaces import Namespaces
from bridge.relay.running.route_run import LAG_S, STOP_S, RouteRun
from bridge.relay.running.status import RouteState, RouteStatus

log = logging.getLogger("busbridge.relay")

PAUSE_MIN_S = 0.5
PAUSE_MAX_S = 30.0
"""The shortest and the longest pause before a route is begun again."""

END_S = STOP_S + 5.0
"""How long a stop waits for a run, one that is attaching its links to a namespace that does not
answer, too."""

FOLLOW_S = 15.0
"""How often the entities are listed that a `*` may stand for."""


class _Running:
    """A route that runs."""

    def __init__(self, route: Route, file: RelayFile, status: RouteStatus) -> None:
        self.route = route
        self.file = file
        self.status = status
        self.is_stopping = False
        self.run: RouteRun | None = None
        self.standing: Standing | None = None

    async def stop(self) -> None:
        """Finish what is under way, and return when the route has ended."""
        self.is_stopping = True
        if self.run is not None:
            self.run.stop()
        if self.standing is not None:
            if self.status.state is RouteState.PAUSED:
                self.standing.task.cancel()
            await asyncio.wait([self.standing.task], timeout=END_S)
            self.standing.task.cancel()
            await asyncio.gather(self.standing.task, return_exceptions=True)
        self.status.state = RouteState.STOPPED


class Relay:
    """Runs the routes of a file until it is stopped.

    Args:
        file: what is to be done.
        lag_s: see `route_run.LAG_S`.
        follow_s: see `FOLLOW_S`.
    """

    def __init__(
        self, file: RelayFile, *, lag_s: float = LAG_S, follow_s: float = FOLLOW_S
    ) -> None:
        self._file = file
        self._lag_s = lag_s
        self._follow_s = follow_s
        self._supervisor = Supervisor()
        self._namespaces = Namespaces()
        self._running: dict[str, _Running] = {}
        self._gone: dict[str, _Running] = {}
        self._ending = Tasks()
        self._following: Standing | None = None

    def __repr__(self) -> str:
        return f"<Relay {len(self._running)} routes>"

    @property
    def statuses(self) -> list[RouteStatus]:
        """What each route says about itself, by names."""
        found = [each for one in self._running.values() for each in one.status.chain]
        return sorted(found, key=lambda each: each.name)

    @property
    def reasons(self) -> list[str]:
        """A sentence for each route that needs somebody."""
        statuses = (self._running[name].status for name in sorted(self._running))
        found = [each.reason for each in statuses if not each.is_sound]
        following = self._following
        if following is not None and following.error is not None and following.begun_s is None:
            found.append(f"What a * stands for cannot be listed: {following.error}.")
        return found

    def start(self) -> None:
        """Begin all routes."""
        self._begin_all(expanded(self._file, {}).file)
        if self._file.patterns:
            self._following = self._supervisor.keep(
                "relay entities", self._follow, pause_min_s=1.0, pause_max_s=self._follow_s
            )

    def _begin_all(self, file: RelayFile) -> None:
        for route in file.first_routes:
            if route.name not in self._running and route.name not in self._gone:
                self._begin(route, file)

    def _begin(self, route: Route, file: RelayFile) -> None:
        status = RouteStatus(route.name, str(route.source), str(route.target))
        for each in chain(file, route)[1:]:
            RouteStatus(each.name, str(each.source), str(each.target), beside=status)
        running = self._running[route.name] = _Running(route, file, status)

        def on_failed(error: BaseException, failures: int, pause_s: float) -> None:
            status.failed(error)
            status.state = RouteState.PAUSED
            log.warning("relay.ended route=%s wait_s=%.1f error=%s", status.name, pause_s, error)

        running.standing = self._supervisor.keep(
            "relay route",
            lambda: self._run(running),
            subject=route.name,
            may_end=lambda: running.is_stopping or status.state is RouteState.STOPPED,
            pause_min_s=PAUSE_MIN_S,
            pause_max_s=PAUSE_MAX_S,
            on_failed=on_failed,
        )

    async def _run(self, running: _Running) -> None:
        run = running.run = RouteRun(
            running.route, running.file, self._namespaces, running.status, lag_s=self._lag_s
        )
        try:
            await run.run()
        except RouteRefused as error:
            running.status.failed(error)
            running.status.state = RouteState.STOPPED
            log.error("relay.stopped route=%s error=%s", running.route.name, error)

    async def _follow(self) -> None:
        """Begin the routes of new entities, and end those of entities that have gone."""
        while True:
            entities = {
                name: await sources_at(
                    self._namespaces.administration_of(self._file.sides[name]), patterns
                )
                for name, patterns in self._file.patterns.items()
            }
            file = expanded(self._file, entities).file
            wanted = {each.name for each in file.first_routes}
            for name in [each for each in self._running if each not in wanted]:
                log.info("relay.gone route=%s", name)
                self._gone[name] = self._running.pop(name)
                self._ending.start(self._end(name), name=f"end of {name}")
            self._begin_all(file)
            await asyncio.sleep(self._follow_s)

    async def _end(self, name: str) -> None:
        """End a route whose entity has gone; the next look may begin it anew."""
        await self._gone[name].stop()
        del self._gone[name]

    async def stop(self) -> None:
        """Let each route finish what is under way and give back the rest; close all links."""
        if self._following is not None:
            self._following.task.cancel()
        running = [*self._running.values(), *self._gone.values()]
        await asyncio.gather(*(each.stop() for each in running))
        self._ending.cancel()
        await self._namespaces.close()
