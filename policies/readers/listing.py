"""The lists of entities in an input whose lists come from separate files or requests."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.model import entity as model

QUEUES, TOPICS = "queues", "topics"


@dataclass(frozen=True, slots=True)
class Listing:
    """The lists of an input; an entity whose list is missing is not known to be unwanted.

    Attributes:
        kinds: `QUEUES`, `TOPICS`, and the name in lower case of each topic whose subscriptions are
            listed.
        empty: the number of empty lists, which do not say of what kind they are.
    """

    kinds: frozenset[str] = frozenset()
    empty: int = 0

    def joined(self, other: Listing | None) -> Listing:
        """Return the lists of both inputs."""
        if other is None:
            return self
        return Listing(kinds=self.kinds | other.kinds, empty=self.empty + other.empty)

    def missing(self, namespace: model.Namespace) -> tuple[str, ...]:
        """Return the title of each missing list; none when there are as many empty lists."""
        wanted = {QUEUES: "the queues", TOPICS: "the topics"}
        for topic in namespace.topics:
            wanted[topic.name.lower()] = f"the subscriptions of {topic.name!r}"
        absent = tuple(title for kind, title in wanted.items() if kind not in self.kinds)
        return absent if len(absent) > self.empty else ()
