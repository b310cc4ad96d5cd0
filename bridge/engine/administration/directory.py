"""The directory of all entities: their definitions as read from RabbitMQ, with change callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from bridge.broker.management.api import Management
from bridge.engine import texts
from bridge.engine.administration.reading import DefinitionTexts
from bridge.engine.poison import Poison
from bridge.model import entity as model
from bridge.model.availability import refusal_of_receives
from bridge.model.errors import (
    EntityConflict,
    EntityNotFound,
    NotAllowed,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import definitions
from bridge.topology.definitions import bare
from bridge.topology.entity_table import Changes, EntityTable
from bridge.topology.resources import Finding

log = logging.getLogger(__name__)

OnChange = Callable[[Changes], None]


class Directory:
    """All entities of the namespace.

    What is read is decoded when its text has changed, and followers are told of what has changed:
    so a read of unchanged definitions costs the comparison of a digest.

    An unreadable definition is noted as poison; its entity stays as it was read before. Of two
    overlapping reads the one that began last counts: one definition may change while all are read.

    A follower that fails keeps no other one from a change. It gets the change again, with all that
    came later, at each `take` until it has followed.

    Args:
        poison: the counter and log of unreadable definitions.

    Attributes:
        failure: the last error of a follower that has not followed yet, or `None`.
    """

    def __init__(self, management: Management, poison: Poison | None = None) -> None:
        self._management = management
        self._poison = poison or Poison()
        self._reading = DefinitionTexts(management.vhost)
        self._read = EntityTable()
        self._taken = EntityTable()
        self._untaken: set[str] = set()
        self._tracked: list[set[str]] = [self._untaken]
        self._followers: list[OnChange] = []
        self._unfollowed: dict[OnChange, Changes] = {}
        self.failure: Exception | None = None
        self._named: set[Finding] = set()
        self._begun = 0
        self._all_at = 0
        self._one_at: dict[str, int] = {}

    @property
    def namespace(self) -> model.Namespace:
        """All entities, as last taken over; the first use after a change costs all of them."""
        return self._taken.namespace

    @property
    def tier(self) -> model.Tier:
        """The namespace's tier, as last taken over."""
        return self._taken.base.tier

    def follow(self, on_change: OnChange) -> None:
        """Call `on_change` with what has changed whenever changed definitions are taken over."""
        self._followers.append(on_change)

    def track(self) -> set[str]:
        """Return a set to which each read adds the paths (lower case) of changed definitions."""
        paths: set[str] = set()
        self._tracked.append(paths)
        return paths

    def entity(self, path: EntityPath) -> model.Entity:
        """Return an entity's definition.

        Raises:
            EntityNotFound: there is no entity of this name, or it has no such sub-queue: that for
                transfers is of queues and topics that had a transaction. A topic's counts as a
                queue.
        """
        entity = self._taken.find(path.key)
        if path.sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
            return _of_transfers(entity, path)
        if entity is None:
            raise EntityNotFound(texts.not_found(str(path)))
        if path.sub_queue is not SubQueue.NONE and isinstance(entity, model.Topic):
            raise EntityNotFound(texts.not_found(str(path)))
        return entity

    def send_entity(self, path: EntityPath) -> model.SendEntity:
        """Return the definition of an entity to send to; raises as `entity`, and:

        Raises:
            NotAllowed: the path is that of a subscription, or of a sub-queue.
        """
        entity = self.entity(path)
        if isinstance(entity, model.Subscription):
            raise NotAllowed(texts.send_to_subscription(entity.path))
        if path.sub_queue is not SubQueue.NONE:
            raise NotAllowed(texts.send_to_sub_queue(entity.path))
        return entity

    def receive_entity(self, path: EntityPath) -> model.ReceiveEntity:
        """Return the definition of an entity to receive from; raises as `entity`.

        A topic raises EntityNotFound, as Azure does.
        """
        entity = self.entity(path)
        if isinstance(entity, model.Topic):
            raise EntityNotFound(texts.not_found(str(path)))
        return entity

    def receivable(self, path: EntityPath) -> model.ReceiveEntity:
        """Return the definition of an entity that allows receives now; raises as `entity`, and:

        Raises:
            EntityDisabled: its status does not allow receives, or a migration holds it.
        """
        entity = self.receive_entity(path)
        if (refused := refusal_of_receives(entity)) is not None:
            raise refused
        return entity

    async def read(self) -> None:
        """Read all definitions, and take them over."""
        await self.fetch()
        self.take()

    async def fetch(self) -> None:
        """Read all definitions; they are `known` then, and no follower is called before `take`."""
        self._begun = begun = self._begun + 1
        answer = await self._management.global_parameters_unless(self._reading.digest)
        if answer is None:
            self._all_at = max(begun, self._all_at)
            return
        read = await asyncio.to_thread(self._reading.read_all, answer.rows)
        if begun < self._all_at:
            return
        self._all_at = begun
        self._one_at = {path: at for path, at in self._one_at.items() if at > begun}
        self._note(self._reading.accept(read, answer.digest, newer=self._one_at), read.base)
        for name, error in read.unreadable.items():
            self._poison.note("definition", name, error)
        self._name_unknown(read.unknown)

    async def fetch_entity(self, path: str) -> model.Entity | None:
        """Read one definition; return its entity, None when there is none.

        No follower is called before `take`.
        """
        name = definitions.parameter_name(self._management.vhost, path)
        self._begun = begun = self._begun + 1
        form = await self._management.global_parameter(name)
        if begun >= max(self._all_at, self._one_at.get(path.lower(), 0)):
            self._one_at[path.lower()] = begun
            now, error = self._reading.accept_one(name, path, form)
            if error:
                self._poison.note("definition", name, error)
            self._note(now, None)
        return self.known(path)

    def known(self, path: str) -> model.Entity | None:
        """Return an entity as last read, taken over or not; a topic has its subscriptions."""
        return self._read.find(path.lower())

    def check_readable(self, paths: Iterable[str]) -> None:
        """Refuse to make entities over definitions that this version cannot read.

        Raises:
            EntityConflict: one of these paths has such a definition.
        """
        vhost, unreadable = self._management.vhost, self._reading.unreadable
        for path in paths if unreadable else ():
            if definitions.parameter_name(vhost, path) in unreadable:
                raise EntityConflict(texts.unreadable_definition(path))

    def part(self, entity: model.Entity) -> model.Namespace:
        """Return a namespace of one entity alone; of a subscription, with its topic."""
        base = self._read.base
        if isinstance(entity, model.Subscription):
            topic = self._read.find(entity.topic.lower()) or self.find(entity.topic)
            if not isinstance(topic, model.Topic):
                return base
            return replace(base, topics=(replace(topic, subscriptions=(entity,)),))
        if isinstance(entity, model.Topic):
            return replace(base, topics=(bare(entity),))
        return replace(base, queues=(entity,))

    def another(self, path: str) -> model.SendEntity | None:
        """Return any queue or topic but the one of this path; None when there is no other."""
        return self._taken.another(path.lower())

    def find(self, path: str) -> model.Entity | None:
        """Return the entity of a path, whose case does not matter; `None` when there is none."""
        return self._taken.find(path.lower())

    def take(self, *paths: str) -> None:
        """Take over what was read, of these entities or of all; tell the followers of changes."""
        wanted = {each.lower() for each in paths} & self._untaken if paths else set(self._untaken)
        self._untaken -= wanted
        base = self._read.base if not paths else None
        changes = self._taken.apply({path: self._read.find(path) for path in wanted}, base)
        unfollowed, self._unfollowed, self.failure = self._unfollowed, {}, None
        for on_change in self._followers if changes is not None else unfollowed:
            missed = unfollowed.get(on_change)
            told = changes if missed is None else missed.then(changes) if changes else missed
            assert told is not None, "a change, or one that was missed"
            try:
                on_change(told)
            except Exception as error:
                self._unfollowed[on_change] = told
                self.failure = error
                log.error("definitions.unfollowed error=%s", error, exc_info=error)

    def _note(self, now: Mapping[str, model.Entity | None], base: model.Namespace | None) -> None:
        """Note what a read has found."""
        changes = self._read.apply(now, base)
        if changes is not None:
            for tracked in self._tracked:
                tracked.update(changes.before.keys() | changes.after.keys())

    def _name_unknown(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding not in self._named:
                self._named.add(finding)
                log.warning(
                    "definition.unknown entity=%s property=%s message=%r",
                    *(finding.entity, finding.property, finding.message),
                )


def _of_transfers(entity: model.Entity | None, path: EntityPath) -> model.Queue:
    """Return the definition by which receivers get an entity's transfer dead letters."""
    if entity is None or isinstance(entity, model.Subscription) or not entity.transactional:
        raise EntityNotFound(texts.not_found(str(path)))
    if isinstance(entity, model.Queue):
        return entity
    return model.Queue(
        name=entity.name,
        status=entity.status,
        held=entity.held,
        incarnation=entity.incarnation,
        transactional=True,
    )
