"""Poison: what could not be handled is named in the log and counted, and the next one goes on."""

from __future__ import annotations

import logging
from collections import Counter

PLACES = (
    *("active", "bucket", "dead-letter", "deferred"),
    *("definition", "events", "history", "inbox", "journal", "expired-unnumbered", "session"),
)
"""Where something may be met: queues of an entity, definitions, and what bridges share."""

ERROR_CHARACTERS_MAX = 300
"""Of an error's text in the log: it may hold what anybody has written."""

log = logging.getLogger(__name__)


class Poison:
    """What this process could not handle.

    Attributes:
        counts: how often, by the place where it was met: a kind of queue, or `definition`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"Poison({dict(self.counts)})"

    def note(self, place: str, name: str, error: Exception | str) -> None:
        """Take note of one.

        Args:
            place: where, one of `PLACES`.
            name: the queue, or the definition.
            error: why.
        """
        assert place in PLACES, place
        self.counts[place] += 1
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        log.error("poison place=%s name=%r error=%r", place, name, text[:ERROR_CHARACTERS_MAX])
