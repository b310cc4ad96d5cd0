"""Keeping RabbitMQ in line with the definitions, whichever bridge or operator changes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable

from bridge.broker.connection.channel import Channel
from bridge.broker.errors import BrokerError, ChannelClosed, ConnectionLost
from bridge.broker.management.api import Management
from bridge.engine.administration.bulk_declaration import OnProgress
from bridge.engine.administration.changes import Administration
from bridge.engine.administration.directory import Directory
from bridge.engine.administration.due_checks import DueChecks
from bridge.engine.administration.live_resources import read_live
from bridge.engine.administration.policies import Policies
from bridge.engine.administration.provision import (
    merged,
    new_incarnation,
    provide_shared,
    provision,
)
from bridge.engine.administration.upkeep import Upkeep
from bridge.engine.clock import now_ms
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending.entity_size import full_entities
from bridge.engine.sending.requests import FULL_S, Sending
from bridge.engine.state import Health, policy_reasons
from bridge.model import entity as model
from bridge.model.duration import instant_text
from bridge.model.errors import EntityConflict, ServerBusy
from bridge.topology.capabilities import Capabilities
from bridge.topology.definitions import bare, entities, with_incarnations
from bridge.topology.lacking import SHARED
from bridge.topology.names import front_path
from bridge.topology.resources import Finding
from bridge.topology.sharing import others

log = logging.getLogger(__name__)

POLL_S = 15.0
"""The time between two reads, for definitions that `rabbitmqctl` or an import has changed."""

AGAIN_MAX = 5
"""How often what was made again is looked at at once; after that, with the next poll."""


class Reconciler:
    """Reads changed definitions, and makes the resources that they need.

    Args:
        state: the bridge's state, for errors of the management API, alarms and findings.
        capabilities: returns RabbitMQ's capabilities.
        sending: told of the entities that have reached their maximum size.
        administration: the verbs that change entities, for their change locks.
        due: what to check or to make soon.
        upkeep: finds what was deleted by hand.
        bind_own: makes the bindings of this process's own queues.
    """

    def __init__(
        self,
        directory: Directory,
        management: Management,
        connections: ConsumerConnections,
        state: Health,
        capabilities: Callable[[], Capabilities],
        policies: Policies,
        sending: Sending,
        session_shards: int,
        administration: Administration,
        due: DueChecks,
        upkeep: Upkeep,
        bind_own: Callable[[], Awaitable[None]],
    ) -> None:
        self.due = due
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
        self._provided: dict[str, model.Entity] = {}
        self._unprovided = directory.track()
        self._conflicting: set[str] = set()
        self._has_applied = asyncio.Event()

    def note(self, path: str) -> None:
        """Note that the resources of an entity, as the directory has read it, exist."""
        key = path.lower()
        entity = self._directory.known(path)
        self._unprovided.discard(key)
        if entity is None:
            self._provided.pop(key, None)
        else:
            self._provided[key] = bare(entity)

    def _note_made(self, path: str, made: model.Entity | None) -> None:
        """Note that the resources of an entity exist as it was then; later changes need others."""
        known = self._directory.known(path)
        if known is None or (made is not None and bare(known) == bare(made)):
            self.note(path)
        elif made is not None:
            self._provided[path] = bare(made)

    async def apply(self, namespace: model.Namespace, on_made: OnProgress) -> tuple[Finding, ...]:
        """Create and update entities; return the findings: features that RabbitMQ lacks.

        Args:
            on_made: see `provision`.

        Raises:
            EntityConflict: an entity, or an object of RabbitMQ, exists with other settings that
                cannot be changed.
            BrokerError: RabbitMQ refuses something.
        """
        live = await read_live(self._management)
        await self._directory.read()
        self._directory.check_readable(each.path for each in entities(namespace))
        there = self._directory.namespace
        await self.upkeep.begin()
        wanted = await asyncio.to_thread(self._wanted, namespace, there)
        async with contextlib.AsyncExitStack() as leases:

            async def open_channel() -> Channel:
                lease = await leases.enter_async_context(self._connections.apart("start"))
                return await lease.channel()

            findings = await provision(
                wanted,
                there,
                live,
                self._capabilities(),
                self._management,
                open_channel,
                on_made,
                owns_vhost=self._policies.owns_vhost,
            )
        await self._directory.read()
        made = {each.path.lower(): bare(each) for each in entities(wanted)}
        for path in list(self._unprovided):
            self._note_made(path, made.get(path))
        await self._policies.put(others=others(live))
        self._has_applied.set()
        return findings

    def _wanted(self, namespace: model.Namespace, there: model.Namespace) -> model.Namespace:
        return with_incarnations(
            merged(there, namespace),
            there,
            new_incarnation,
            session_shards=self._session_shards,
            made_at=instant_text(now_ms()),
            folds_session_ids=True,
        )

    async def check(self) -> None:
        """Read all definitions, make missing resources, and update the state.

        Also notes full entities, RabbitMQ's alarms, and policies that override the bridge's.
        """
        number = self.due.begin_look()
        try:
            await self._directory.fetch()
            with self.due.taking_incomplete() as incomplete:
                lacking = await self.upkeep.look(self._is_made)
                incomplete.update(path.lower() for path in lacking)
                if SHARED in lacking:
                    await self._provide_shared()
                await self._provide(incomplete)
                if incomplete:
                    await self._provide_rest({front_path(each) for each in incomplete})
            self._directory.take()
            self.due.end_look(number)
            await self._policies.put(others=self.upkeep.others, is_look=True)
            namespace = self._directory.namespace
            for entity in await full_entities(namespace, self._management):
                self._sending.note_full(entity.path, POLL_S + FULL_S)
            self._state.note_alarms(await self._management.alarms())
            self._state.findings = await policy_reasons(self.upkeep.queues, self._management)
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
                    await self.due.changed.wait()
            self.due.changed.clear()
            try:
                await self.check()
                if self._directory.failure is not None:
                    raise self._directory.failure  # named in health, and told again at once
            except BaseException:
                self.due.changed.set()  # begun again, it checks at once
                raise

    async def follow_bridges(self) -> None:
        """Read definitions that other bridges have changed; `check` does not delay this."""
        while True:
            await self.due.changed_one.wait()
            with self.due.taking_changed() as paths:
                await self._read(paths)

    async def _read(self, paths: Iterable[str]) -> None:
        """Read definitions that another bridge has changed; only policies are put again."""
        for path in paths:
            await self._directory.fetch_entity(path)
            self._directory.take(path)
            self.note(path)
        await self._policies.put()

    async def _provide_shared(self) -> None:
        """Make the resources that all entities share, and the bindings of the own queues."""
        async with self._connections.apart("shared resources") as lease:
            await provide_shared(await lease.channel())
        await self.bind_own()
        self.upkeep.made(SHARED)

    async def _provide(self, incomplete: set[str]) -> None:
        """Make the missing resources of changed entities; what stops one stops no other."""
        for path in sorted(self._unprovided | self._below(incomplete)):
            entity = self._directory.known(path)
            if entity is None or entity.status is model.EntityStatus.DELETING:
                self.note(path)
                self._state.note_refused(path, None)
                continue
            is_incomplete = path in incomplete or front_path(path) in incomplete
            if not is_incomplete and bare(entity) == self._provided.get(path):
                self._unprovided.discard(path)
                continue
            made: model.Entity | None = entity
            try:
                made = await self._provide_one(entity.path, is_incomplete=is_incomplete)
            except EntityConflict as error:
                log.error("definition.conflict error=%s", error)
                self._conflicting.add(path)
            except ServerBusy as error:
                log.warning("definition.busy error=%s", error)
                self.due.incomplete.add(path)
            except (ChannelClosed, ConnectionLost) as error:
                if isinstance(error, ConnectionLost) and not error.is_internal:
                    raise
                log.warning("definition.refused path=%s error=%s", entity.path, error)
                self._state.note_refused(entity.path, error)
                self.due.incomplete.add(path)
                continue
            else:
                self._conflicting.discard(path)
                self.upkeep.made(entity.path)
            self._state.note_refused(path, None)
            self._note_made(path, made)

    async def _provide_rest(self, fronts: Collection[str]) -> None:
        """Make what was deleted again while these entities were made; only then they are whole."""
        lacking: set[str] = set()
        for _ in range(AGAIN_MAX):
            if self.due.incomplete:  # it could not be made, or more is to be made: see `follow`
                return
            found = await self.upkeep.still_lacking(fronts)
            # What another's resource keeps from being made is lacking until an operator removes it.
            lacking = {path.lower() for path in found} - self._conflicting
            if not lacking:
                return
            log.warning("resource.gone_again paths=%s", sorted(lacking))
            await self._provide(lacking)
        self.due.incomplete |= lacking

    def _below(self, incomplete: set[str]) -> set[str]:
        """Return incomplete entities, each topic with its subscriptions."""
        found = incomplete - {SHARED}
        for path in incomplete:
            entity = self._directory.known(path)
            if isinstance(entity, model.Topic):
                found.update(each.path.lower() for each in entity.subscriptions)
        return found

    async def _provide_one(self, path: str, *, is_incomplete: bool) -> model.Entity | None:
        """Make an entity's resources under its change lock, unless it was deleted meanwhile.

        Returns:
            The entity as its resources are now.
        """
        async with self._administration.alone(front_path(path)):
            now = await self._directory.fetch_entity(path)
            if now is None or now.status is model.EntityStatus.DELETING:
                return now
            if is_incomplete or bare(now) != self._provided.get(path.lower()):
                await self._administration.provide(now)
            return now

    def _is_made(self, path: str) -> bool:
        """Whether the resources of a queue or topic, or a subscription, were made as it is now."""
        if path not in self._unprovided:
            return True
        entity = self._directory.known(path)
        return entity is not None and bare(entity) == self._provided.get(path)
