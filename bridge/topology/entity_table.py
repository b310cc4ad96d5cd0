"""The entities of a namespace by path, of which some change at a time.

A change costs the queues and topics that it is about, however many others there are. An entity's
definition does not say what is below it: the table puts subscriptions to their topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bridge.model import entity as model
from bridge.topology.definitions import assemble, bare
from bridge.topology.names import front_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs between two states of a namespace's entities.

    A topic is among the changed entities when any of its subscriptions is, and has them all.

    Attributes:
        before: the changed entities as they were, by path (lower case); new ones are not in it.
        after: the changed entities as they are; those that are no more are not in it.
        namespace: the namespace's own properties, without entities.
    """

    before: Mapping[str, model.Entity] = field(default_factory=dict)
    after: Mapping[str, model.Entity] = field(default_factory=dict)
    namespace: model.Namespace = field(default_factory=model.Namespace)

    @property
    def gone(self) -> set[str]:
        """The paths (lower case) of the entities that are no more.

        Where there is one of another kind now, the earlier one is no more.
        """
        return {
            path
            for path, entity in self.before.items()
            if type(self.after.get(path)) is not type(entity)
        }

    def then(self, later: Changes) -> Changes:
        """Return these changes and later ones as one."""
        known = self.before.keys() | self.after.keys()
        changed = later.before.keys() | later.after.keys()
        new = {path: each for path, each in later.before.items() if path not in known}
        stay = {path: each for path, each in self.after.items() if path not in changed}
        return Changes(
            before={**self.before, **new},
            after={**stay, **later.after},
            namespace=later.namespace,
        )

    @property
    def fronts(self) -> Iterator[tuple[str, model.SendEntity]]:
        """The changed queues and topics as they are, each with its path in lower case."""
        for path, entity in self.after.items():
            if not isinstance(entity, model.Subscription):
                yield path, entity

    @property
    def receivable(self) -> Iterator[tuple[str, model.ReceiveEntity]]:
        """The changed queues and subscriptions as they are, each with its path in lower case."""
        for path, entity in self.after.items():
            if not isinstance(entity, model.Topic):
                yield path, entity


class EntityTable:
    """The entities of one namespace."""

    def __init__(self, base: model.Namespace | None = None) -> None:
        self._base = base or model.Namespace()
        self._bare: dict[str, model.SendEntity] = {}
        self._below: dict[str, dict[str, model.Subscription]] = {}
        self._shown: dict[str, model.Entity] = {}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._namespace: model.Namespace | None = self._base

    def __len__(self) -> int:
        return len(self._shown)

    def find(self, path: str) -> model.Entity | None:
        """Return an entity by its path in lower case; a topic has its subscriptions."""
        return self._shown.get(path)

    def another(self, path: str) -> model.SendEntity | None:
        """Return a queue or topic other than the one of this path (lower case); None: no other."""
        return next((each for key, each in self._bare.items() if key != path), None)

    @property
    def base(self) -> model.Namespace:
        """The namespace's own properties, without entities."""
        return self._base

    @property
    def namespace(self) -> model.Namespace:
        """All entities; the first call after a change costs all of them."""
        if self._namespace is None:
            self._namespace = assemble(self._base, list(self._shown.values()))
        return self._namespace

    def apply(
        self, now: Mapping[str, model.Entity | None], base: model.Namespace | None = None
    ) -> Changes | None:
        """Put and remove entities; return what has changed, None when nothing has.

        Args:
            now: entities by path, in any case; None for one that is no more. The subscriptions of a
                topic do not count, and a subscription without its topic is not shown.
            base: the namespace's own properties; None leaves them.
        """
        is_same = base is None or base == self._base
        if base is not None:
            self._base = base
        before: dict[str, model.Entity] = {}
        after: dict[str, model.Entity] = {}
        fronts = [front for path, entity in now.items() for front in self._put(path, entity)]
        for front in dict.fromkeys(fronts):
            old = {path: self._shown[path] for path in self._paths.get(front, ())}
            new = self._of_front(front)
            before |= _others(old, new)
            after |= _others(new, old)
            for path in old.keys() - new.keys():
                del self._shown[path]
            self._shown |= new
            if new:
                self._paths[front] = tuple(new)
            else:
                self._paths.pop(front, None)
        if is_same and not before and not after:
            return None
        self._namespace = None
        return Changes(before=before, after=after, namespace=self._base)

    def _put(self, path: str, entity: model.Entity | None) -> Iterable[str]:
        """Put or remove one entity; return the paths (lower case) of queues and topics to show."""
        key = path.lower()
        if entity is None:
            front = front_path(key)
            self._bare.pop(key, None)
            if (below := self._below.get(front)) is not None:
                below.pop(key, None)
                if not below:
                    del self._below[front]
            return {key, front}
        front = entity.front.lower()
        if isinstance(entity, model.Subscription):
            self._below.setdefault(front, {})[key] = entity
        else:
            self._bare[key] = bare(entity)
        return (front,)

    def _of_front(self, front: str) -> dict[str, model.Entity]:
        """Return a queue, or a topic with its subscriptions, as they are shown."""
        bare = self._bare.get(front)
        if not isinstance(bare, model.Topic):
            return {} if bare is None else {front: bare}
        below = dict(sorted(self._below.get(front, {}).items()))
        return {front: replace(bare, subscriptions=tuple(below.values())), **below}


def _others(
    these: Mapping[str, model.Entity], those: Mapping[str, model.Entity]
) -> dict[str, model.Entity]:
    """Return the entities of one state that the other has not, or differently."""
    return {
        path: each
        for path, each in these.items()
        if each is not (other := those.get(path)) and each != other
    }
