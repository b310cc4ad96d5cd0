"""Upkeep: what an operator has deleted by hand is found, made again, and named.

A look lists the exchanges, queues and bindings of the virtual host, once with every poll of the
definitions. What has other unchangeable settings is an operator's decision: it is named, not
changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Protocol

from bridge.broker.connection.channel import Channel
from bridge.broker.errors import ManagementRefused
from bridge.broker.management.api import Management
from bridge.engine.administration.directory import Directory
from bridge.engine.administration.live_resources import BINDINGS, EXCHANGES, QueuesView, View
from bridge.engine.bridges import Bridges
from bridge.engine.clock import now_ms
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.state import Health
from bridge.model import entity as model
from bridge.topology.capabilities import Capabilities
from bridge.topology.lacking import Lack, lacking
from bridge.topology.names import front_path
from bridge.topology.perils import key_of
from bridge.topology.resources import Binding, Queue
from bridge.topology.wanted import WantedResources

log = logging.getLogger(__name__)

FIRST_LOOK_MS = 30_000
"""What the first look finds missing may have been missing so long: bridges look more often."""

ELSEWHERE_S = 20.0
"""How long a bridge that starts waits for another one's look, of which there is one in 15 s."""

LOOK_AGAIN_S = 1.0

DOUBT_MS = 120_000
"""How long a process that has made a route expects to lead the entity: when another one leads it
then, that one has looked."""

LISTINGS_MAX = 4
"""How often the resources are listed again, until two listings agree on what is missing."""


class Leading(Protocol):
    """The leaders of this process, which publish by the routes that looks check."""

    def begin_look(self) -> None:
        """Note the publishes so far: they have arrived if the look finds their routes."""

    def end_look(self, lacking: Collection[str]) -> None:
        """Note that the look found all routes but those to these entities (lower case)."""

    def leads(self, front: str) -> bool:
        """Whether this process leads an entity, and is ready."""

    def is_elsewhere(self, front: str) -> bool:
        """Whether another process leads an entity."""

    async def learn(self, front: str, lacking: Collection[str]) -> None:
        """Read what `stop_for` is to know; called before it, as that must not wait."""

    def stop_for(self, front: str, lacking: Collection[str]) -> bool:
        """End an entity's term: routes to these paths are missing.

        The next term begins when they are made again, and publishes again what may be in the
        journal alone. It must not wait: no term may begin before the entity counts as incomplete.

        Returns:
            Whether the next term of this process does so.
        """

    def has_noted(self, front: str) -> bool:
        """Whether the present term has published again what the last `stop_for` has noted."""


class ExchangeListener(Protocol):
    """Consumes a queue of this process's own, which is bound to a shared exchange."""

    @property
    def bindings(self) -> Collection[Binding]:
        """The binding of the queue, once there is one."""

    async def bind(self, channel: Channel) -> None:
        """Make the exchange and the binding, if they are missing."""


class OwnBindings:
    """The bindings of this process's own queues."""

    def __init__(
        self, connections: ConsumerConnections, listeners: Collection[ExchangeListener]
    ) -> None:
        self._connections = connections
        self._listeners = listeners

    @property
    def bindings(self) -> list[Binding]:
        """The bindings that should be there now."""
        return [binding for each in self._listeners for binding in each.bindings]

    async def bind(self) -> None:
        """Make the bindings and their exchanges, if they are missing."""
        with await self._connections.own_channel() as channel:
            for each in self._listeners:
                await each.bind(channel)


class Upkeep:
    """The looks of one process.

    Args:
        state: is told of what was missing, and of what has other settings.
        directory: the definitions, as last read.
        own: the bindings of this process's own queues.
        bridges: lists the running bridges.
        on_letters: called with an entity's path and a time (UTC ms) when its dead-letter queue was
            bound again: the queue may lack dead letters since then.

    Attributes:
        leading: the leaders of this process.
    """

    def __init__(
        self,
        management: Management,
        state: Health,
        directory: Directory,
        capabilities: Callable[[], Capabilities],
        own: OwnBindings,
        bridges: Bridges,
        on_letters: Callable[[str, int], None],
    ) -> None:
        self.leading: Leading | None = None
        self._state = state
        self._capabilities = capabilities
        self._own = own
        self._directory = directory
        self._stale = directory.track()
        self._looking = asyncio.Lock()
        self._lacks: dict[str, list[Lack]] = {}
        self._wanted = WantedResources()
        self._version = 0
        self._exchanges = View(management, EXCHANGES)
        self._queues = QueuesView(management)
        self._bindings = View(management, BINDINGS)
        self._elsewhere: set[str] = set()
        self._on_letters = on_letters
        self._bridges = bridges
        self._looked_ms = now_ms() - FIRST_LOOK_MS
        self._lettered_ms: dict[str, int] = {}
        self._doubtful: dict[str, set[str]] = {}
        self._doubts_end_ms = 0

    async def begin(self) -> None:
        """Look once before this process makes the missing resources of defined entities.

        While other bridges run, the one that leads an entity without a route is to find that: it
        alone can stop its leader. So this waits for its look, `ELSEWHERE_S` at most. When this
        process makes a route itself, it publishes again what the journal alone may have, once it
        leads the entity.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + ELSEWHERE_S
        while True:
            found = await self._silent_routes()
            if not found or loop.time() > end_s or not await self._bridges.others():
                break
            await asyncio.sleep(LOOK_AGAIN_S)
        for front, paths in found.items():
            self._doubt(front, paths)
            log.warning("resource.route_missing front=%s paths=%s", front, sorted(paths))

    async def _silent_routes(self) -> dict[str, set[str]]:
        """Return the entities that lack a route without an error, by the entity that is sent to."""
        async with self._looking:
            await self._update(lambda path: True)
            lacks = await self._lacking()
        found: dict[str, set[str]] = {}
        for each in lacks:
            if each.is_silent and not each.conflict:
                found.setdefault(front_path(each.path).lower(), set()).add(each.path.lower())
        return found

    @property
    def others(self) -> Collection[str] | None:
        """A user's own quorum queues, at the last look; None before it."""
        return self._queues.others

    @property
    def queues(self) -> Iterable[Queue]:
        """The queues that the entities stand on."""
        return self._wanted.queues

    async def look(self, is_made: Callable[[str], bool]) -> list[str]:
        """Return the paths of the entities that lack a resource, `SHARED` for the shared ones.

        One look follows another. When another process leads an entity that lacks a route, it looks
        first, and this process with its next look.

        Args:
            is_made: whether the resources of an entity have been made, by its path (lower case);
                others are not looked for.
        """
        async with self._looking:
            return await self._look(is_made)

    async def _look(self, is_made: Callable[[str], bool]) -> list[str]:
        begun_ms = now_ms()
        if self.leading is not None:
            self.leading.begin_look()
        await self._update(is_made)
        try:
            found = await self._lacking()
        except ManagementRefused as error:
            # One binding of a user's that RabbitMQ cannot list: definitions are followed all the
            # same.
            log.warning("resources.unlisted error=%s", error)
            self._state.conflicts = [f"What is deleted by hand is not found: {error}"]
            return []
        for _ in range(LISTINGS_MAX if found else 0):
            # Exchanges, queues and bindings are listed one after the other, with gaps between.
            before, found = found, await self._lacking()
            if found == before:
                break
        self._state.note_conflicts([each for each in found if each.conflict])
        self._lacks = {}
        for each in found:
            if not each.conflict:
                self._lacks.setdefault(each.path, []).append(each)
                if each.takes_dead_letters:
                    self._lettered_ms.setdefault(each.path, self._looked_ms)
        self._looked_ms = begun_ms
        await self._stop_leaders()
        return list(self._lacks)

    async def _update(self, is_made: Callable[[str], bool]) -> None:
        """Take over changed entities; after an error they are taken over by the next look."""
        fronts = {front_path(path) for path in self._stale} | self._stale
        if fronts:
            self._stale.clear()
            self._version += 1
            try:
                made = {front: self._made(front, is_made) for front in fronts}
                await asyncio.to_thread(self._put, made)
            except BaseException:
                self._stale |= fronts
                raise

    def _put(self, made: Mapping[str, model.SendEntity | None]) -> None:
        for front, entity in made.items():
            self._wanted.put(front, entity, self._capabilities())

    def _made(self, front: str, is_made: Callable[[str], bool]) -> model.SendEntity | None:
        """Return a queue or topic with the subscriptions whose resources have been made."""
        entity = self._directory.known(front)
        if entity is None or isinstance(entity, model.Subscription) or not _stands(entity):
            return None
        if not is_made(front):
            self._stale.add(front)
            return None
        if isinstance(entity, model.Topic):
            stay = [each for each in entity.subscriptions if _stands(each)]
            whole = [each for each in stay if is_made(each.path.lower())]
            self._stale.update(each.path.lower() for each in stay if each not in whole)
            return replace(entity, subscriptions=tuple(whole))
        return entity

    async def _lacking(self) -> list[Lack]:
        own = tuple(self._own.bindings)
        wanted, version = self._wanted, self._version
        # Bindings first: they go with their queue or exchange, which is made again with them, so
        # one that went between the looks would never be named.
        bindings = await self._bindings.look(
            chain(wanted.bindings, own), (version, *map(key_of, own))
        )
        exchanges = await self._exchanges.look(wanted.exchanges, version)
        queues = await self._queues.look(wanted.queues, version)
        return lacking(wanted.bases, [*exchanges, *queues, *bindings])

    async def still_lacking(self, fronts: Collection[str]) -> list[str]:
        """Look again at entities that were just made again; return the paths that lack a resource.

        What an operator deletes while an entity is made again may be half there then: the resources
        of a subscription include its topic's exchange, and no other subscription's binding.

        Args:
            fronts: the entities that are sent to (lower case).
        """
        async with self._looking:
            try:
                found = await self._lacking()
            except ManagementRefused:  # see `look`
                return []
        paths = {each.path for each in found if not each.conflict and each.path}
        return sorted(
            path
            for path in paths
            if front_path(path).lower() in fronts
            and (entity := self._directory.known(path)) is not None
            and _stands(entity)
        )

    def made(self, path: str) -> None:
        """Note that the resources of an entity, or the shared ones, were made again."""
        for lack in self._lacks.pop(path, ()):
            log.warning("resource.made_again path=%s name=%r", path, lack.name)
            self._state.made_again.note(lack.name)
        since_ms = self._lettered_ms.pop(path, None)
        is_elsewhere = self.leading is not None and self.leading.is_elsewhere(
            front_path(path).lower()
        )
        if since_ms is not None and not is_elsewhere:
            self._on_letters(path, since_ms)

    async def _stop_leaders(self) -> None:
        """Stop the leaders of entities that lack a route; leave another process's to that."""
        leading = self.leading
        if leading is None:
            return
        routes: dict[str, set[str]] = {}
        for path, lacks in self._lacks.items():
            if any(each.is_route for each in lacks):
                silent = routes.setdefault(front_path(path).lower(), set())
                silent.update(path.lower() for each in lacks if each.is_silent)
        seen, self._elsewhere = (
            self._elsewhere,
            {each for each in routes if leading.is_elsewhere(each)},
        )
        for front in self._elsewhere - seen:
            for path in [each for each in self._lacks if front_path(each).lower() == front]:
                del self._lacks[path]
        if now_ms() > self._doubts_end_ms:
            others = filter(leading.is_elsewhere, [*self._doubtful])  # they have looked
            gone = (each for each in self._doubtful if self._directory.known(each) is None)
            for front in {*others, *gone}:
                del self._doubtful[front]
        for front in [each for each in self._doubtful if leading.leads(each)]:
            if leading.has_noted(front):
                del self._doubtful[front]
        doubted = [front for front in self._doubtful if leading.leads(front)]
        for front in doubted:
            routes.setdefault(front, set()).update(self._doubtful[front])
        for front, paths in routes.items():
            await leading.learn(front, paths)
        missing = {path.lower() for path in self._lacks}
        leading.end_look(missing.union(*(self._doubtful.pop(front) for front in doubted)))
        for front, paths in routes.items():
            is_led = leading.leads(front)
            if not (leading.stop_for(front, paths) and is_led) and paths:
                self._doubt(front, paths)  # perhaps nobody leads it now

    def _doubt(self, front: str, paths: Collection[str]) -> None:
        """Note routes whose messages the journal alone may have, until this process leads."""
        self._doubts_end_ms = now_ms() + DOUBT_MS
        self._doubtful.setdefault(front, set()).update(paths)


def _stands(entity: model.Entity) -> bool:
    return entity.status is not model.EntityStatus.DELETING
