"""Settings of the definitions that do not hold on this RabbitMQ, for health."""

from __future__ import annotations

from collections.abc import Callable

from bridge.engine import texts
from bridge.model.entity import Entity, Tier, Topic
from bridge.topology.capabilities import Capabilities
from bridge.topology.entity_table import Changes
from bridge.topology.findings import BY_THE_BRIDGE, entity_findings, tier_findings
from bridge.topology.shards import spells_sessions


class UnmetSettings:
    """A sentence for each setting that does not hold, kept up with the definitions.

    Args:
        capabilities: returns those of RabbitMQ, once they are known.
    """

    def __init__(self, capabilities: Callable[[], Capabilities]) -> None:
        self._capabilities = capabilities
        self._tier: Tier | None = None
        self._of: dict[str, list[str]] = {}
        self._spelt: dict[str, list[str]] = {}

    def follow(self, changes: Changes) -> None:
        """Take over changed definitions."""
        self._tier = changes.namespace.tier
        for path in changes.before:
            self._of.pop(path, None)
            self._spelt.pop(path, None)
        for path, entity in changes.after.items():
            if found := self._sentences(entity):
                self._of[path] = found
            if spelt := _spelt_in(entity):
                self._spelt[path] = spelt

    def _sentences(self, entity: Entity) -> list[str]:
        return [
            f"{each.property} of {entity.path!r} does not hold. {each.message}"
            for each in entity_findings(entity, self._capabilities())
            if each.grade != BY_THE_BRIDGE
        ]

    @property
    def sentences(self) -> list[str]:
        """The sentences of all entities; first those of the namespace."""
        found = []
        if self._tier is not None:
            found += [each.message for each in tier_findings(self._tier, self._capabilities())]
        found += [each for of in self._of.values() for each in of]
        if self._spelt:
            found.append(texts.spelt_sessions([each for of in self._spelt.values() for each in of]))
        return found


def _spelt_in(entity: Entity) -> list[str]:
    """Return the paths at which two spellings of one session id may be two sessions."""
    receivable = entity.subscriptions if isinstance(entity, Topic) else (entity,)
    return [each.path for each in receivable if spells_sessions(each)]
