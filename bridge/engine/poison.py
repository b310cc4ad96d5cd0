"""Poison: input that could not be handled is named in the log and counted; work goes on."""

from __future__ import annotations

import logging
from collections import Counter

PLACES = (
    *("active", "bucket", "dead-letter", "deferred"),
    *("definition", "events", "history", "inbox", "journal", "expired-unnumbered", "session"),
)
"""The places of poison: an entity's queues and streams, definitions, and notifications."""

ERROR_CHARACTERS_MAX = 300
"""The most characters of an error's text in the log: it may quote foreign input."""

log = logging.getLogger(__name__)


class Poison:
    """The poison that this process has met.

    Attributes:
        counts: the count of poison by place (`PLACES`).
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"Poison({dict(self.counts)})"

    def note(self, place: str, name: str, error: Exception | str) -> None:
        """Count and log one message or definition that could not be handled.

        Args:
            place: one of `PLACES`.
            name: the name of the queue, or of the definition.
            error: the reason.
        """
        assert place in PLACES, place
        self.counts[place] += 1
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        log.error("poison place=%s name=%r error=%r", place, name, text[:ERROR_CHARACTERS_MAX])
