"""Creating, changing and deleting entities and rules: one change of an entity at a time.

A bridge changes an entity under its change lock: an exclusive queue of RabbitMQ, which only one
connection can have. So of two creates at once the first makes the entity, and the second finds it.
A topic's lock serves its subscriptions, too.

    create, update   resources first, then the definition: its readers find the resources
    rules, holds     the definition alone: no resource depends on them
    delete           the definition first: no bridge begins to use the entity
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from bridge.background.retry import retry
from bridge.broker.connection.channel import Channel
from bridge.broker.errors import BrokerError
from bridge.broker.management.api import Management
from bridge.engine import texts
from bridge.engine.administration.change_lock import LOCK_RETRY_S, LOCK_S, ChangeLocks
from bridge.engine.administration.directory import Directory
from bridge.engine.administration.policies import Policies
from bridge.engine.administration.provision import check_fixed, new_incarnation, provide
from bridge.engine.administration.rule_checks import check_rules
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.model import entity as model
from bridge.model.errors import (
    EntityAlreadyExists,
    EntityConflict,
    EntityNotFound,
)
from bridge.topology import definitions, names
from bridge.topology.capabilities import Capabilities
from bridge.topology.shards import with_shards

Changed = TypeVar("Changed", bound=model.Entity)

log = logging.getLogger(__name__)


class Administration:
    """The verbs that create, change and delete entities.

    Args:
        capabilities: returns RabbitMQ's capabilities.
        session_shards: the number of shards of a new session entity.

    Attributes:
        on_changed: called with an entity's path when its definition was written or deleted.
        followed: returns when all bridges follow the hold of an entity (path) by a run.
    """

    def __init__(
        self,
        directory: Directory,
        management: Management,
        connections: ConsumerConnections,
        capabilities: Callable[[], Capabilities],
        policies: Policies,
        session_shards: int,
    ) -> None:
        self._session_shards = session_shards
        self._directory = directory
        self._management = management
        self._connections = connections
        self._capabilities = capabilities
        self._policies = policies
        self.on_changed: list[Callable[[str], None]] = []
        self.followed: Callable[[str, str], Awaitable[None]] = _by_nobody
        self._locks = ChangeLocks(connections)

    async def create(self, entity: Changed) -> Changed:
        """Create an entity, of a topic without its subscriptions; return it as it is stored.

        Raises:
            EntityAlreadyExists: an entity of this name exists.
            EntityNotFound: a subscription's topic does not exist.
            EntityConflict: RabbitMQ has a different object of a name that the entity needs, or a
                definition of the entity that this version cannot read.
            InvalidRule, QuotaExceeded: as `create_rule`, of a subscription's rules.
            ServerBusy: another change of the entity takes too long.
        """
        async with self.alone(entity.front):
            if await self.read(entity.path) is not None:
                raise EntityAlreadyExists(texts.already_exists(entity.path))
            self._directory.check_readable((entity.path,))
            topic = await self._topic_of(entity)
            check_rules(self._directory, entity, ())
            made = replace(with_shards(entity, self._session_shards), incarnation=new_incarnation())
            made = definitions.with_folded_ids(made, topic)
            await self.write(made)
            return made

    async def update(
        self, entity: Changed, check: Callable[[model.Entity], None] = lambda there: None
    ) -> Changed:
        """Change an entity's properties; return it as it is stored.

        Subscriptions of a topic, and rules of a subscription, are unchanged: the caller may not
        know the latest ones.

        Args:
            check: raises an error to refuse the change, given the present entity.

        Raises:
            EntityNotFound: there is no entity of this name.
            EntityConflict: a property that is fixed at creation differs.
            ServerBusy: another change of the entity takes too long.
        """
        async with self.alone(entity.front):
            there = await self._there(entity.path)
            check(there)
            check_fixed(entity.path, there, entity)
            made = definitions.with_origin(entity, there)
            if isinstance(made, model.Subscription) and isinstance(there, model.Subscription):
                made = replace(made, rules=there.rules)
            await self.write(made)
            return made

    async def hold(self, path: str, run: str) -> None:
        """Hold an entity for a migration (`model.availability`); return when all bridges follow.

        What the run holds already stays so. Of a topic its subscriptions are not held with it.

        Args:
            run: the name of the migration's run.

        Raises:
            EntityNotFound: there is no entity of this name.
            EntityConflict: another run holds it.
            ServerBusy: another change of the entity takes too long, or it is held, and not all
                bridges have said that they follow.
        """
        async with self.alone(names.front_path(path)):
            there = await self._there(path)
            if there.held != run:
                _check_holder(there, "")
                await self.define(replace(there, held=run))
                log.info("entity.held path=%s run=%s", there.path, run)
        await self.followed(there.path, run)

    async def release(self, path: str, run: str) -> None:
        """End a run's hold of an entity; of one that nobody holds nothing changes.

        Raises:
            EntityNotFound: there is no entity of this name.
            EntityConflict: another run holds it.
            ServerBusy: another change of the entity takes too long.
        """
        async with self.alone(names.front_path(path)):
            there = await self._there(path)
            if there.held:
                _check_holder(there, run)
                await self.define(replace(there, held=""))
                log.info("entity.released path=%s run=%s", there.path, run)

    async def delete(self, path: str) -> None:
        """Delete an entity with its messages, and a topic with its subscriptions.

        Raises:
            EntityNotFound: there is no entity of this name.
            ServerBusy: another change of the entity takes too long.
        """
        front = names.front_path(path)
        async with self.alone(front):
            if isinstance(await self._there(path), model.Topic):
                # This bridge may not know of subscriptions that another one has just made.
                await self._directory.read()
            gone = [path, *self._subscriptions_of(path)][::-1]
            for each in gone:
                await self.undefine(each)
            try:
                for each in gone:
                    await self.remove_resources(each)
            except BrokerError as error:
                log.warning("entity.left path=%s error=%s", path, error)
            else:
                return
        await retry(
            partial(self._remove_rest, front, gone),
            wait_s=LOCK_RETRY_S,
            retryable=BrokerError,
            total_s=LOCK_S,
        )

    async def _remove_rest(self, front: str, gone: Sequence[str]) -> None:
        """Remove the resources of deleted entities that a lost connection has left.

        The change lock was lost with the connection: an entity that was made again since then, and
        has a definition, stays.
        """
        async with self.alone(front):
            for path in gone:
                name = definitions.parameter_name(self._management.vhost, path)
                if await self._management.global_parameter(name) is None:
                    await self.remove_resources(path)

    def get(self, path: str) -> model.Entity:
        """Return an entity as this bridge has read it last.

        Raises:
            EntityNotFound: there is no entity of this name.
        """
        found = self._directory.find(path)
        if found is None:
            raise EntityNotFound(texts.not_found(path))
        return found

    def namespace(self) -> model.Namespace:
        """Return all entities as this bridge has read them last, each kind sorted by name."""
        return self._directory.namespace

    async def create_rule(self, subscription: str, rule: model.Rule) -> None:
        """Add a rule to a subscription.

        Raises:
            InvalidRule: its filter or action is invalid.
            EntityNotFound: there is no such subscription.
            EntityAlreadyExists: the subscription has a rule of this name.
            QuotaExceeded: the topic would have too many filters.
            ServerBusy: another change of the topic takes too long.
        """
        async with self.alone(names.front_path(subscription)):
            there = await self._subscription(subscription)
            if there.rule(rule.name) is not None:
                raise EntityAlreadyExists(texts.already_exists(f"{there.path}/Rules/{rule.name}"))
            await self._write_rules(there, (*there.rules, rule))

    async def update_rule(self, subscription: str, rule: model.Rule) -> model.Rule:
        """Replace the subscription's rule of the same name; return it as it is stored.

        It keeps the spelling of its name, and its time. Raises as `create_rule`, and:

        Raises:
            EntityNotFound: the subscription has no such rule.
        """
        async with self.alone(names.front_path(subscription)):
            there = await self._subscription(subscription)
            old = self._required(there, rule.name)
            made = replace(rule, name=old.name, created_at=old.created_at)
            await self._write_rules(
                there, tuple(made if each is old else each for each in there.rules)
            )
            return made

    async def delete_rule(self, subscription: str, name: str) -> None:
        """Delete a rule; a subscription without rules gets no messages.

        Raises:
            EntityNotFound: there is no such subscription or rule.
            ServerBusy: another change of the topic takes too long.
        """
        async with self.alone(names.front_path(subscription)):
            there = await self._subscription(subscription)
            old = self._required(there, name)
            await self._write_rules(there, tuple(each for each in there.rules if each is not old))

    def rules(self, subscription: str) -> Sequence[model.Rule]:
        """Return a subscription's rules; raises EntityNotFound."""
        found = self.get(subscription)
        if not isinstance(found, model.Subscription):
            raise EntityNotFound(texts.not_found(subscription))
        return found.rules

    async def _topic_of(self, entity: model.Entity) -> model.Topic | None:
        """Return a subscription's topic, None for another entity; raises EntityNotFound."""
        if not isinstance(entity, model.Subscription):
            return None
        topic = await self.read(entity.topic)
        if not isinstance(topic, model.Topic):
            raise EntityNotFound(texts.not_found(entity.topic))
        return topic

    async def _subscription(self, path: str) -> model.Subscription:
        found = await self._there(path)
        if not isinstance(found, model.Subscription):
            raise EntityNotFound(texts.not_found(path))
        return found

    def _required(self, subscription: model.Subscription, name: str) -> model.Rule:
        found = subscription.rule(name)
        if found is None:
            raise EntityNotFound(texts.not_found(f"{subscription.path}/Rules/{name}"))
        return found

    async def _write_rules(self, there: model.Subscription, rules: tuple[model.Rule, ...]) -> None:
        changed = replace(there, rules=rules)
        check_rules(self._directory, changed, there.rules)
        await self.define(changed)

    def _subscriptions_of(self, path: str) -> list[str]:
        found = self._directory.find(path)
        return [each.path for each in found.subscriptions] if isinstance(found, model.Topic) else []

    async def read(self, path: str) -> model.Entity | None:
        """Read an entity's definition from RabbitMQ; return the entity, or `None`."""
        await self._directory.fetch_entity(path)
        self._directory.take(path)
        return self._directory.find(path)

    async def _there(self, path: str) -> model.Entity:
        found = await self.read(path)
        if found is None:
            raise EntityNotFound(texts.not_found(path))
        return found

    async def write(self, entity: model.Entity) -> None:
        """Make the resources of an entity, then write its definition; both are in force then."""
        with self._policies.making((entity,)):
            await self._provide(entity)
            await self.define(entity)
        await self._policies.put()  # another bridge may have put policies without this entity

    async def provide(self, entity: model.Entity) -> None:
        """Make the resources of an entity that has a definition.

        Raises:
            EntityConflict: a resource exists with other unchangeable settings.
            BrokerError: RabbitMQ, or its management API, refuses something.
        """
        with self._policies.making((entity,)):
            await self._provide(entity)

    async def _provide(self, entity: model.Entity) -> None:
        with await self.channel(entity.path) as channel:
            await provide(
                self._directory.part(entity),
                entity,
                self._directory.another(entity.front),
                self._capabilities(),
                self._policies,
                self._management,
                channel,
            )

    async def undefine(self, path: str) -> None:
        """Delete an entity's definition, and tell other bridges."""
        name = definitions.parameter_name(self._management.vhost, path)
        await self._management.delete_global_parameter(name)
        await self._told(path)

    async def define(self, entity: model.Entity) -> None:
        """Write an entity's definition, and tell other bridges; its resources exist."""
        name = definitions.parameter_name(self._management.vhost, entity.path)
        await self._management.put_global_parameter(name, definitions.to_json(entity))
        await self._told(entity.path)

    async def _told(self, path: str) -> None:
        """Read a changed definition, and tell other bridges."""
        await self.read(path)
        for each in self.on_changed:
            each(path)

    async def remove_resources(self, path: str) -> None:
        """Delete an entity's exchanges and queues, the inbox last: its consumer is the leader."""
        base = names.resource_base(path)
        with await self.channel(path) as channel:
            for exchange in names.exchanges_of(path):
                await channel.declarations.delete_exchange(exchange)
            below = await self._management.queues_below(base + "/$")
            for queue in (base, *sorted(below, key=names.is_inbox)):
                await channel.declarations.delete_queue(queue)

    def alone(self, front: str) -> AbstractAsyncContextManager[None]:
        """Hold the change lock of an entity; see `ChangeLocks.alone`."""
        return self._locks.alone(front)

    async def channel(self, path: str) -> Channel:
        """Open a channel on the connection of an entity's change; see `ChangeLocks.channel`."""
        return await self._locks.channel(path)


async def _by_nobody(path: str, run: str) -> None:
    """Wait for nobody: there are no other bridges."""


def _check_holder(entity: model.Entity, run: str) -> None:
    if entity.held != run:
        raise EntityConflict(
            f"The entity '{entity.path}' is held by the migration '{entity.held}'."
        )
