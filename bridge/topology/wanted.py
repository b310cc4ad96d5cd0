"""The resources that entities stand on with the bridge, of which some change at a time.

What `exchanges`, `queues` and `bindings` return is of the time of the call: it can be read in a
thread while entities change.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.model import entity as model
from bridge.topology.bridged import queue_pieces, shared, topic_pieces
from bridge.topology.capabilities import Capabilities
from bridge.topology.compiler import joined
from bridge.topology.names import resource_base
from bridge.topology.resources import Binding, Exchange, Queue, Topology


class WantedResources:
    """The exchanges, queues and bindings of some entities, and those that all entities share.

    Attributes:
        bases: the path of each entity, by the RabbitMQ name that its resources begin with.
    """

    def __init__(self) -> None:
        self.bases: dict[str, str] = {}
        self._parts: dict[str, Topology] = {"": shared()}
        self._paths: dict[str, list[str]] = {}

    def put(self, front: str, entity: model.SendEntity | None, capabilities: Capabilities) -> None:
        """Put a queue, or a topic with its subscriptions, in place of the one of its path.

        Args:
            front: the path in lower case.
            entity: None removes it.
        """
        for path in self._paths.pop(front, ()):
            del self.bases[resource_base(path)]
        if entity is None:
            self._parts.pop(front, None)
            return
        if isinstance(entity, model.Topic):
            pieces = topic_pieces(entity, capabilities)
            paths = [entity.path, *(each.path for each in entity.subscriptions)]
        else:
            pieces, paths = queue_pieces(entity, capabilities), [entity.path]
        self._parts[front] = joined(pieces)
        self._paths[front] = paths
        self.bases |= {resource_base(path): path for path in paths}

    @property
    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges."""
        return (each for part in tuple(self._parts.values()) for each in part.exchanges)

    @property
    def queues(self) -> Iterator[Queue]:
        """All queues."""
        return (each for part in tuple(self._parts.values()) for each in part.queues)

    @property
    def bindings(self) -> Iterator[Binding]:
        """All bindings."""
        return (each for part in tuple(self._parts.values()) for each in part.bindings)
