"""What changes in the counts of entities, a second, between two readings of them.

A count says how many messages are there, not how many have come or gone: its change is what came
less what went. Nothing else can be known from counts, so nothing else is said.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.model.counts import Counts

COUNTED: Final = ("active", "dead_letter", "scheduled", "transfer", "transfer_dead_letter")
"""The counts that have a rate."""

ORDERS: Final = ("change", "backlog", "active", "dead-letter", "scheduled", "path")
"""What entities can be sorted by: the fastest change of any count, all messages, or one count."""


@dataclass(frozen=True, slots=True)
class CountsReading:
    """The counts of an entity as they were at a time.

    Attributes:
        at_s: when, by a clock that only goes forward.
        created: when the entity was made, as the namespace says it: one that was deleted and made
            again under its name is another entity.
    """

    counts: Counts
    at_s: float
    created: str = ""


@dataclass(frozen=True, slots=True)
class EntityRates:
    """The counts of an entity, and what changes in them.

    Attributes:
        over_s: the time between the readings; `None`: there is one alone, of this entity.
        per_s: the change of each count a second; empty where `over_s` is `None`.
    """

    path: str
    counts: Counts
    over_s: float | None
    per_s: Mapping[str, float]

    @property
    def fastest(self) -> float:
        """The fastest change of any count, in either direction; 0 where none is known."""
        return max(map(abs, self.per_s.values()), default=0.0)


def rates_of(
    before: Mapping[str, CountsReading], after: Mapping[str, CountsReading]
) -> list[EntityRates]:
    """Return the rates of all entities that are there now, by two readings of their counts.

    An entity that was not there before, or that is another one by the same path, has none.

    Args:
        before, after: the readings, by the paths of the entities.
    """
    return [_rates(path, before.get(path), found) for path, found in after.items()]


def _rates(path: str, before: CountsReading | None, after: CountsReading) -> EntityRates:
    if before is None or before.created != after.created or after.at_s <= before.at_s:
        return EntityRates(path, after.counts, None, {})
    over_s = after.at_s - before.at_s
    per_s = {
        name: (getattr(after.counts, name) - getattr(before.counts, name)) / over_s
        for name in COUNTED
    }
    return EntityRates(path, after.counts, over_s, per_s)


def gone(before: Collection[str], after: Collection[str]) -> list[str]:
    """Return the paths of the entities that are not there any more."""
    return sorted(set(before) - set(after))


def ordered(found: Collection[EntityRates], order: str) -> list[EntityRates]:
    """Return entities in an order of `ORDERS`: the largest first, equals by their backlog.

    Raises:
        KeyError: there is no such order.
    """

    def key(each: EntityRates) -> tuple[float, int, str]:
        first = {
            "change": each.fastest,
            "backlog": each.counts.total,
            "active": each.counts.active,
            "dead-letter": each.counts.dead_letter,
            "scheduled": each.counts.scheduled,
            "path": 0,
        }[order]
        return -first, 0 if order == "path" else -each.counts.total, each.path.lower()

    return sorted(found, key=key)
