"""The definitions of all entities, as RabbitMQ keeps them, and who is told when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from bridge.broker.management import Management
from bridge.engine import texts
from bridge.model import entity as model
from bridge.model.errors import (
    ArgumentError,
    EntityNotFound,
    NotImplementedHere,
    ServiceBusError,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import definitions
from bridge.topology.resources import Finding

log = logging.getLogger(__name__)

OnChange = Callable[[model.Namespace], None]


class Directory:
    """What entities there are.

    Attributes:
        namespace: all of them, as last read.
    """

    def __init__(self, management: Management) -> None:
        self._management = management
        self._queues: dict[str, model.Queue] = {}
        self._topics: frozenset[str] = frozenset()
        self._followers: list[OnChange] = []
        self._named: set[Finding] = set()
        self.namespace = model.Namespace()

    def follow(self, on_change: OnChange) -> None:
        """Have `on_change` called whenever the definitions have changed."""
        self._followers.append(on_change)

    def queue(self, path: EntityPath) -> model.Queue:
        """Return a queue's definition.

        Raises:
            EntityNotFound: there is none of that name.
            NotImplementedHere: it is a topic or a subscription.
        """
        queue = self._queues.get(path.key)
        if queue is None and path.key.partition("/subscriptions/")[0] in self._topics:
            raise NotImplementedHere(texts.topics_not_here(str(path)))
        if queue is None or path.sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
            raise EntityNotFound(texts.not_found(str(path)))
        return queue

    async def read(self) -> model.Namespace:
        """Read the definitions; tell the followers when they have changed."""
        self.take(await self.fetch())
        return self.namespace

    async def fetch(self) -> model.Namespace:
        """Read the definitions, and tell nobody."""
        prefix = definitions.parameter_prefix(self._management.vhost)
        own_name = definitions.namespace_parameter_name(self._management.vhost)
        base = model.Namespace()
        found: list[model.Entity] = []
        for name, form in (await self._management.global_parameters()).items():
            if not isinstance(form, dict):
                continue
            try:
                if name == own_name:
                    base = definitions.namespace_from_json(form)
                elif name.startswith(prefix):
                    entity = definitions.from_json(form)
                    own = definitions.parameter_name(
                        self._management.vhost, definitions.path_of(entity)
                    )
                    if name != own:
                        raise ArgumentError(f"this entity's parameter is {own!r}")
                    found.append(entity)
                    self._name_unknown(definitions.unknown_fields(form))
            except ServiceBusError as error:
                log.error("definition.unreadable parameter=%s error=%s", name, error)
        return definitions.assemble(base, found)

    def _name_unknown(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding not in self._named:
                self._named.add(finding)
                log.warning(
                    "definition.unknown entity=%s property=%s message=%r",
                    *(finding.entity, finding.property, finding.message),
                )

    def take(self, namespace: model.Namespace) -> None:
        """Take over what was fetched; tell the followers when it has changed."""
        if namespace == self.namespace:
            return
        self.namespace = namespace
        self._queues = {queue.name.lower(): queue for queue in namespace.queues}
        self._topics = frozenset(topic.name.lower() for topic in namespace.topics)
        for on_change in self._followers:
            on_change(namespace)
