"""The directory of all entities: their definitions as read from RabbitMQ, with change callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from bridge.broker.management.api import Management
from bridge.engine import texts
from bridge.engine.poison import Poison
from bridge.model import entity as model
from bridge.model.errors import (
    ArgumentError,
    EntityDisabled,
    EntityNotFound,
    NotAllowed,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import definitions
from bridge.topology.resources import Finding

log = logging.getLogger(__name__)

OnChange = Callable[[model.Namespace], None]


class Directory:
    """All entities of the namespace.

    An unreadable definition is noted as poison; its entity stays as it was read before. Of two
    overlapping reads the one that began last counts: one definition may change while all are read.

    Args:
        poison: the counter and log of unreadable definitions.

    Attributes:
        namespace: all entities, as last taken over (`take`).
    """

    def __init__(self, management: Management, poison: Poison | None = None) -> None:
        self._management = management
        self._poison = poison or Poison()
        self._unreadable: dict[str, str] = {}
        self._readable: dict[str, model.Entity] = {}
        self._entities: dict[str, model.Entity] = {}
        self._followers: list[OnChange] = []
        self._named: set[Finding] = set()
        self._base = model.Namespace()
        self._begun = 0
        self._all_at = 0
        self._one_at: dict[str, int] = {}
        self.namespace = model.Namespace()

    def follow(self, on_change: OnChange) -> None:
        """Call `on_change` whenever the definitions have changed."""
        self._followers.append(on_change)

    def entity(self, path: EntityPath) -> model.Entity:
        """Return an entity's definition.

        Raises:
            EntityNotFound: there is no entity of this name, or it has no such sub-queue.
        """
        entity = self._entities.get(path.key)
        if entity is None or path.sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
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
            EntityDisabled: its status does not allow receives.
        """
        entity = self.receive_entity(path)
        if not entity.status.allows_receives:
            raise EntityDisabled(texts.disabled(entity.path, for_sends=False))
        return entity

    async def read(self) -> model.Namespace:
        """Read all definitions, take them over, and return them."""
        self.take(await self.fetch())
        return self.namespace

    async def fetch(self) -> model.Namespace:
        """Read and return all definitions; no follower is called before `take`."""
        prefix = definitions.parameter_prefix(self._management.vhost)
        own_name = definitions.namespace_parameter_name(self._management.vhost)
        base = model.Namespace()
        readable: dict[str, model.Entity] = {}
        unreadable: dict[str, str] = {}
        self._begun = begun = self._begun + 1
        for name, form in (await self._management.global_parameters()).items():
            try:
                if name == own_name:
                    base = definitions.namespace_from_json(form)
                elif name.startswith(prefix):
                    readable[name] = self._entity(name, form)
                    self._name_unknown(definitions.unknown_fields(form))
            except Exception as error:
                # Operators write definitions, too: an unreadable one must not hide the others.
                unreadable[name] = f"{type(error).__name__}: {error}"
                if name in self._readable:
                    readable[name] = self._readable[name]
                elif name == own_name:
                    base = self._base
        if begun < self._all_at:
            return self.known
        self._all_at = begun
        self._keep_newer(begun, readable)
        for name in unreadable:
            if self._unreadable.get(name) != unreadable[name]:
                self._poison.note("definition", name, unreadable[name])
        self._unreadable, self._readable, self._base = unreadable, readable, base
        return self.known

    @property
    def known(self) -> model.Namespace:
        """All entities as last read, taken over or not."""
        return definitions.assemble(self._base, self._readable.values())

    def _keep_newer(self, begun: int, readable: dict[str, model.Entity]) -> None:
        """Replace definitions in a read of all by those that were read singly after its begin."""
        self._one_at = {name: at for name, at in self._one_at.items() if at > begun}
        for name in self._one_at:
            if name in self._readable:
                readable[name] = self._readable[name]
            else:
                readable.pop(name, None)

    async def fetch_entity(self, path: str) -> model.Namespace:
        """Read one definition; return all, with this one as it is now. No follower is called."""
        name = definitions.parameter_name(self._management.vhost, path)
        self._begun = begun = self._begun + 1
        form = await self._management.global_parameter(name)
        if begun < max(self._all_at, self._one_at.get(name, 0)):
            return self.known
        self._one_at[name] = begun
        readable = {key: each for key, each in self._readable.items() if key != name}
        if form is not None:
            try:
                readable[name] = self._entity(name, form)
            except Exception as error:
                self._poison.note("definition", name, f"{type(error).__name__}: {error}")
                if name in self._readable:
                    readable[name] = self._readable[name]
        self._readable = readable
        return self.known

    def find(self, path: str) -> model.Entity | None:
        """Return the entity of a path, whose case does not matter; `None` when there is none."""
        return self._entities.get(path.lower())

    def _entity(self, name: str, form: Any) -> model.Entity:
        entity = definitions.from_json(form)
        own = definitions.parameter_name(self._management.vhost, entity.path)
        if name != own:
            raise ArgumentError(f"this entity's parameter is {own!r}")
        return entity

    def _name_unknown(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding not in self._named:
                self._named.add(finding)
                log.warning(
                    "definition.unknown entity=%s property=%s message=%r",
                    *(finding.entity, finding.property, finding.message),
                )

    def take(self, namespace: model.Namespace) -> None:
        """Take over fetched definitions; call the followers if they have changed."""
        if namespace == self.namespace:
            return
        self.namespace = namespace
        self._entities = {each.path.lower(): each for each in definitions.entities(namespace)}
        for on_change in self._followers:
            on_change(namespace)
