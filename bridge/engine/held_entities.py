"""The entities that migrations hold, for health."""

from __future__ import annotations

from bridge.topology.entity_table import Changes

NAMED_MAX = 5
"""So many entities of a run are named; the others are counted."""


class HeldEntities:
    """A sentence for each run that holds entities, kept up with the definitions."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}
        self._paths: dict[str, str] = {}

    def follow(self, changes: Changes) -> None:
        """Take over changed definitions."""
        for path in changes.before:
            self._runs.pop(path, None)
            self._paths.pop(path, None)
        for path, entity in changes.after.items():
            if entity.held:
                self._runs[path], self._paths[path] = entity.held, entity.path

    @property
    def sentences(self) -> list[str]:
        """The sentences, in the order of the runs' names."""
        return [self._sentence(run) for run in sorted(set(self._runs.values()))]

    def _sentence(self, run: str) -> str:
        held = sorted(self._paths[path] for path, by in self._runs.items() if by == run)
        named = ", ".join(repr(each) for each in held[:NAMED_MAX])
        others = f" and {len(held) - NAMED_MAX} more" if len(held) > NAMED_MAX else ""
        return (
            f"The migration '{run}' holds {named}{others}: nothing is sent, activated, delivered "
            "or forwarded there until it ends the hold."
        )
