"""How messages are handed over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HandOverRules:
    """How a hand-over is to be done.

    Attributes:
        is_ordered: whether the source's order is kept.
        credit: how many messages may be unconfirmed.
        batches_max: batches under way at a time; one in an ordered hand-over.
        messages_max, bytes_max: of one batch.
        outage_ms: how long messages are held while the target is away.
        rate_per_s: messages a second; `None` for any number.
        dead_letters_refused: a message that is refused for good becomes a dead letter; otherwise
            the hand-over ends.
    """

    is_ordered: bool = False
    credit: int = 500
    batches_max: int = 4
    messages_max: int = 250
    bytes_max: int = 256 * 1024
    outage_ms: int = 60_000
    rate_per_s: float | None = None
    dead_letters_refused: bool = False
