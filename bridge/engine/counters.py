"""What the engine has done since it started, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Totals; each is one sample of /metrics."""

    sent: int = 0
    scheduled: int = 0
    cancelled: int = 0
    delivered: int = 0
    received_and_deleted: int = 0
    completed: int = 0
    abandoned: int = 0
    dead_lettered: int = 0
    deferred: int = 0
    released: int = 0
    renewed: int = 0
    locks_expired: int = 0
    expired: int = 0
    second_copies: int = 0
    sent_back: int = 0
    refused: int = 0
