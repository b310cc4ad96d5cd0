"""What the sidecar counts about each entity, for `/metrics` and for the bench."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from bridge.machine.sequencer import Sequencer

LATENESS_BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
"""Upper bounds of the histogram's buckets; what is later goes into one more."""


@dataclass(slots=True)
class Histogram:
    """How often a value fell below each bound."""

    bounds: tuple[int, ...] = LATENESS_BOUNDS_MS
    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_BOUNDS_MS) + 1))
    sum: int = 0

    def add(self, value: int) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(slots=True)
class Meters:
    """Counters of one entity's sequencer in this process.

    Attributes:
        is_active: this process owns the entity's inbox at the moment.
        at_hand: arrivals delivered and not yet carried out.
        ready: arrivals that RabbitMQ still has, when last counted (`Sidecar.count_ready`).
        in_flight: publications not yet confirmed.
        arrivals: arrivals carried out.
        published: entries published, messages and others.
        activated: scheduled messages that became active.
        duplicates: messages that were dropped because their id had been accepted.
        pending: scheduled messages.
        buckets: live bucket queues.
        takeover_entries: entries of the journal that were needed when it became the owner last.
        takeover_s: how long that took, from the first arrival until it carried out arrivals.
        terms: how often this process became the owner.
        left_out: subscriptions whose queues take nothing, and that are left out.
        lost: messages of such subscriptions that had left the journal.
        lateness_ms: how late scheduled messages were published.
    """

    is_active: bool = False
    at_hand: int = 0
    ready: int = 0
    in_flight: int = 0
    arrivals: int = 0
    published: int = 0
    activated: int = 0
    duplicates: int = 0
    pending: int = 0
    buckets: int = 0
    takeover_entries: int = 0
    takeover_s: float = 0.0
    terms: int = 0
    left_out: int = 0
    lost: int = 0
    lateness_ms: Histogram = field(default_factory=Histogram)

    def look(self, sequencer: Sequencer) -> None:
        """Take over what a sequencer has done so far."""
        memory = sequencer.memory
        self.published, self.pending = sequencer.journal.entries, len(memory.pending)
        self.duplicates = sequencer.duplicates
        self.buckets = len(memory.wheel.buckets)

    @property
    def backlog(self) -> int:
        """Arrivals that wait for their number."""
        return self.at_hand + self.ready
