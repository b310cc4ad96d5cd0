"""Keeping RabbitMQ in line with the definitions, whichever bridge or operator changes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator

from bridge.broker.errors import BrokerError
from bridge.broker.management.api import Management
from bridge.engine.administration.changes import Administration
from bridge.engine.administration.directory import Directory
from bridge.engine.administration.policies import Policies
from bridge.engine.administration.provision import (
    changed,
    merged,
    new_incarnation,
    provide,
    provide_shared,
    provision,
    read_live,
)
from bridge.engine.administration.upkeep import Upkeep
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending.entity_size import full_entities
from bridge.engine.sending.requests import FULL_S, Sending
from bridge.engine.state import State, policy_reasons
from bridge.model import entity as model
from bridge.model.errors import EntityConflict, ServerBusy
from bridge.topology.capabilities import Capabilities
from bridge.topology.definitions import assemble, entities, with_entity, with_incarnations
from bridge.topology.lacking import SHARED
from bridge.topology.names import front_path
from bridge.topology.resources import Finding
from bridge.topology.sharing import others

log = logging.getLogger(__name__)

POLL_S = 15.0
"""The time between two reads, for definitions that `rabbitmqctl` or an import has changed."""


class Reconciler:
    """Reads changed definitions, and makes the resources that they need.

    Args:
        state: the bridge's state, for errors of the management API, alarms and findings.
        capabilities: returns RabbitMQ's capabilities.
        sending: told of the entities that have reached their maximum size.
        administration: returns the verbs that change entities, for their change locks.
        upkeep: finds what was deleted by hand.
        bind_own: makes the bindings of this process's own queues.
    """

    def __init__(
        self,
        directory: Directory,
        management: Management,
        connections: ConsumerConnections,
        state: State,
        capabilities: Callable[[], Capabilities],
        policies: Policies,
        sending: Sending,
        session_shards: int,
        administration: Callable[[], Administration],
        upkeep: Upkeep,
        bind_own: Callable[[], Awaitable[None]],
    ) -> None:
        self.upkeep = upkeep
        self.bind_own = bind_own
        self._administration = administration
        self._session_shards = session_shards
        self._directory = directory
        self._management = management
        self._connections = connections
        self._state = state
        self._capabilities = capabilities
        self._policies = policies
        self._sending = sending
        self._provided = model.Namespace()
        self._changed = asyncio.Event()
        self._changed_one = asyncio.Event()
        self._changed_paths: set[str] = set()
        self._incomplete: set[str] = set()
        self._making: set[str] = set()
        self._passed = asyncio.Event()
        self._has_applied = asyncio.Event()

    def wake(self) -> None:
        """Check all definitions soon: any of them may have changed."""
        self._changed.set()

    def wake_for(self, path: str) -> None:
        """Read one definition soon: another bridge has changed it, and made its resources."""
        self._changed_paths.add(path)
        self._changed_one.set()

    def complete(self, path: str) -> None:
        """Make an entity's resources again soon: one of them was deleted by hand."""
        if path.lower() not in self._incomplete:
            log.warning("entity.incomplete path=%s", path)
        self._incomplete.add(path.lower())
        self._changed.set()

    def note(self, path: str) -> None:
        """Note that the resources of an entity, as the directory has it, exist."""
        entity = self._directory.find(path)
        if entity is not None:
            self._provided = with_entity(self._provided, entity)

    async def apply(self, namespace: model.Namespace) -> tuple[Finding, ...]:
        """Create and update entities; return the findings: features that RabbitMQ lacks.

        Raises:
            EntityConflict: an entity, or an object of RabbitMQ, exists with other settings that
                cannot be changed.
            BrokerError: RabbitMQ refuses something.
        """
        live = await read_live(self._management)
        there = await self._directory.read()
        await self.upkeep.begin(there)
        wanted = with_incarnations(
            merged(there, namespace), there, new_incarnation, session_shards=self._session_shards
        )
        async with self._connections.apart("start") as lease:
            channel = await lease.channel()
            findings = await provision(
                *(wanted, there, live, self._capabilities(), self._management, channel),
                owns_vhost=self._policies.owns_vhost,
            )
        self._provided = await self._directory.read()
        await self._policies.put(others=others(live))
        self._has_applied.set()
        return findings

    async def check(self) -> None:
        """Read all definitions, make missing resources, and update the state.

        Also notes full entities, RabbitMQ's alarms, and policies that override the bridge's.
        """
        try:
            found = await self._directory.fetch()
            with self._taking_incomplete() as incomplete:
                lacking = await self.upkeep.look(self._made(found))
                incomplete.update(path.lower() for path in lacking)
                if SHARED in lacking:
                    await self._provide_shared()
                await self._provide(found, incomplete)
            self._directory.take(self._directory.known)
            await self._policies.put(others=self.upkeep.others, is_look=True)
            for entity in await full_entities(found, self._management):
                self._sending.note_full(entity.path, POLL_S + FULL_S)
            self._state.note_alarms(await self._management.alarms())
            self._state.findings = await policy_reasons(
                self._directory.namespace, self._capabilities(), self._management
            )
        except BrokerError as error:
            self._state.management = str(error)
        else:
            self._state.management = None

    async def follow(self) -> None:
        """Check the definitions when woken, and every `POLL_S`, until cancelled.

        It begins after the first `apply`, which makes the missing resources of all entities.
        """
        await self._has_applied.wait()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.check()
            except BaseException:
                self._changed.set()  # begun again, it checks at once
                raise

    async def follow_bridges(self) -> None:
        """Read definitions that other bridges have changed; `check` does not delay this."""
        while True:
            await self._changed_one.wait()
            self._changed_one.clear()
            paths, self._changed_paths = self._changed_paths, set()
            try:
                await self._read(paths)
            except BaseException:
                self._changed_paths |= paths
                self._changed_one.set()
                raise

    async def _read(self, paths: Iterable[str]) -> None:
        """Read definitions that another bridge has changed; only policies are put again."""
        for path in paths:
            self._directory.take(await self._directory.fetch_entity(path))
            self.note(path)
        await self._policies.put()

    def _made(self, found: model.Namespace) -> model.Namespace:
        """Return the entities whose resources have been made, as they are defined."""
        if found == self._provided:
            return self._provided
        new = {each.path.lower() for each in changed(self._provided, found)}
        return assemble(found, [each for each in entities(found) if each.path.lower() not in new])

    async def _provide_shared(self) -> None:
        """Make the resources that all entities share, and the bindings of the own queues."""
        async with self._connections.apart("shared resources") as lease:
            await provide_shared(await lease.channel())
        await self.bind_own()
        self.upkeep.made(SHARED)

    async def whole(self, front: str) -> None:
        """Wait while an entity, or a subscription of it, is known to lack a resource.

        `SHARED` stands for the resources that all entities share.
        """
        while any(front_path(each) == front.lower() for each in self._incomplete | self._making):
            await self._passed.wait()

    @contextlib.contextmanager
    def _taking_incomplete(self) -> Iterator[set[str]]:
        """Take the incomplete entities; those that are not made stay incomplete after an error."""
        self._making, self._incomplete = self._incomplete, set()
        try:
            yield self._making
        except BaseException:
            self._incomplete |= self._making
            raise
        finally:
            self._making = set()
            self._passed.set()
            self._passed = asyncio.Event()

    async def _provide(self, found: model.Namespace, incomplete: set[str]) -> None:
        """Make the missing resources of changed entities; a conflict of one stops no other."""
        for entity in changed(self._provided, found, frozenset(incomplete)):
            try:
                await self._provide_one(entity.path, frozenset(incomplete))
            except EntityConflict as error:
                log.error("definition.conflict error=%s", error)
            except ServerBusy as error:
                log.warning("definition.busy error=%s", error)
                self._incomplete.add(entity.path.lower())
            else:
                self.upkeep.made(entity.path)
        self._provided = found

    async def _provide_one(self, path: str, incomplete: Container[str]) -> None:
        """Make an entity's resources under its change lock, unless it was deleted meanwhile."""
        async with self._administration().alone(front_path(path)):
            now = await self._directory.fetch_entity(path)
            wanted = [
                each for each in changed(self._provided, now, incomplete) if each.path == path
            ]
            if not wanted:
                return
            channel = await self._administration().channel(path)
            with self._policies.making(wanted), channel:
                await provide(
                    *(wanted, now, self._capabilities(), self._policies),
                    *(self._management, channel),
                )
