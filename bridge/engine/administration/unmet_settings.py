"""Settings of the definitions that do not hold on this RabbitMQ, for health."""

from __future__ import annotations

from collections.abc import Callable

from bridge.model.entity import Entity, Tier
from bridge.topology.capabilities import Capabilities
from bridge.topology.entity_table import Changes
from bridge.topology.findings import BY_THE_BRIDGE, entity_findings, tier_findings


class UnmetSettings:
    """A sentence for each setting that does not hold, kept up with the definitions.

    Args:
        capabilities: returns those of RabbitMQ, once they are known.
    """

    def __init__(self, capabilities: Callable[[], Capabilities]) -> None:
        self._capabilities = capabilities
        self._tier: Tier | None = None
        self._of: dict[str, list[str]] = {}

    def follow(self, changes: Changes) -> None:
        """Take over changed definitions."""
        self._tier = changes.namespace.tier
        for path in changes.before:
            self._of.pop(path, None)
        for path, entity in changes.after.items():
            if found := self._sentences(entity):
                self._of[path] = found

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
        return found + [each for of in self._of.values() for each in of]
