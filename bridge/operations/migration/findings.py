"""What stands against a migration, or is not kept by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FindingLevel = Literal["refusal", "loss", "change", "note"]

FINDING_LEVELS: Final[tuple[FindingLevel, ...]] = ("refusal", "loss", "change", "note")
"""refusal: the target does not take it, and it must be mended first; loss: it is not kept; change:
the target has another value, which would be replaced; note: something to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFinding:
    """A sentence about an entity.

    Attributes:
        entity: its path; "" for the namespace.
        subject: what it is about: a property by Azure's name, or words such as "deferred messages".
        text: the sentence, with figures and what to do.
    """

    level: FindingLevel
    entity: str
    subject: str
    text: str
