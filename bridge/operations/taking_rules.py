"""How messages are taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HOLD: Final = 1_000
"""How many messages that are not wanted are held where nobody says otherwise."""

WINDOW: Final = 500
"""How many messages that are wanted are in hand where nothing bounds them more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakingRules:
    """How messages are taken.

    Attributes:
        is_moving: they are sent, and completed when the target has confirmed them; otherwise they
            are only completed.
        is_written: they are written to an undo file before they are sent or completed.
        limit: how many are taken at most; `None` for all.
        hold: how many that are not wanted may be held.
        window: how many that are wanted may be in hand.
        batches_max: batches under way at a time.
        messages_max, bytes_max: of one batch.
        outage_ms: how long messages are kept in hand while the target is away.
        rate_per_s: messages a second; `None` for any number.
    """

    is_moving: bool
    is_written: bool = False
    limit: int | None = None
    hold: int = HOLD
    window: int = WINDOW
    batches_max: int = 4
    messages_max: int = 250
    bytes_max: int = 256 * 1024
    outage_ms: int = 60_000
    rate_per_s: float | None = None
