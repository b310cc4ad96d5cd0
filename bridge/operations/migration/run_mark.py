"""The mark at the target that all entities of a run are verified: what it is of, and its doubts."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

CLOCKS_MS: Final = 5_000
"""How much later than the mark an entity may seem to be made: bridges have clocks of their own."""

OWN_PREFIX: Final = "busbridge-migrat"
"""How the names begin of all queues that a migration makes at its target for itself."""

LEASE_PREFIX: Final = "busbridge-migrating-"
"""How the name begins of the one that keeps two commands from working at once."""

RECORD_PREFIX: Final = "busbridge-migrated-"
"""How the name begins of the target's queue that says what was copied."""


def is_own(path: str) -> bool:
    """Whether a queue is one that a migration made for itself: it is part of none."""
    return path.lower().startswith(OWN_PREFIX)


@dataclass(frozen=True, slots=True)
class FoundMark:
    """A mark that the target has.

    Attributes:
        created: when it was made, as the namespace writes it; `None`: it does not tell.
        paths: the digest of the paths that were verified.
    """

    created: str | None
    paths: str


def mark_name(run_id: str, patterns: Sequence[str]) -> str:
    """Return the queue that is the mark of a run: the same for the same command.

    Args:
        patterns: the entities that the command names; none: all.
    """
    return f"busbridge-{run_id}-{_digest(patterns or ['*'])}"


def digest_of(paths: Collection[str]) -> str:
    """Return the digest of the paths that a run has verified."""
    return f"{len(set(paths))} entities, {_digest(paths)}"


def _digest(texts: Collection[str]) -> str:
    ordered = "\n".join(sorted({each.lower() for each in texts}))
    return hashlib.sha256(ordered.encode()).hexdigest()[:12]


def doubts(found: FoundMark, meant: Collection[str], created: Mapping[str, str]) -> list[str]:
    """Return a sentence for each reason why a mark is none of the entities as they are now.

    Args:
        found: the mark.
        meant: the paths of the run, in lower case.
        created: when each entity of the target was made, by the path in lower case.
    """
    marked_ms = made_ms(found.created)
    told = []
    for path in sorted(meant):
        seen_ms = made_ms(created.get(path))
        if path not in created:
            told.append(f"{path} is not at the target.")
        elif marked_ms and seen_ms and seen_ms > marked_ms + CLOCKS_MS:
            told.append(f"{path} was made at the target behind the mark.")
    if not told and found.paths != digest_of(meant):
        told.append(f"The mark is of other entities than these {len(meant):,}.")
    return told


def made_ms(text: str | None) -> float | None:
    """Return when an entity was made (UTC ms); `None`: its namespace does not tell."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp() * 1_000
    except ValueError:
        return None
