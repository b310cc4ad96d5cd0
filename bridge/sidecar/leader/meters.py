"""The sidecar's counters of each entity, for `/metrics` and for the benchmark."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from bridge.machine.inbox.sequencer import Sequencer

LATENESS_BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
"""Inclusive upper bounds of the histogram's buckets; one more bucket counts larger values."""


@dataclass(slots=True)
class Histogram:
    """The counts of values up to each bound, and their sum."""

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
        is_active: this process leads the entity now.
        at_hand: arrivals delivered and not yet carried out.
        ready: arrivals in RabbitMQ at the last count (`Sidecar.count_ready`).
        in_flight: publications not yet confirmed.
        arrivals: arrivals carried out.
        published: entries published, messages and others.
        activated: scheduled messages that became active.
        duplicates: messages that were dropped because their id had been accepted.
        copies_again: forwarded and relayed messages that were dropped because they came before.
        copies_too_late: relayed messages that became dead letters because they may have.
        pending: scheduled messages.
        buckets: live bucket queues.
        takeover_entries: journal entries that the last takeover needed.
        takeover_s: how long the last takeover took, from the first arrival to `is_active`.
        terms: how often this process became the leader.
        left_out: the topic's left-out subscriptions.
        lost: messages of left-out subscriptions that had left the journal before the catch-up.
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
    copies_again: int = 0
    copies_too_late: int = 0
    pending: int = 0
    buckets: int = 0
    takeover_entries: int = 0
    takeover_s: float = 0.0
    terms: int = 0
    left_out: int = 0
    lost: int = 0
    lateness_ms: Histogram = field(default_factory=Histogram)

    def look(self, sequencer: Sequencer) -> None:
        """Update the counters that a sequencer keeps itself."""
        memory = sequencer.memory
        self.published, self.pending = sequencer.journal.entries, len(memory.pending)
        self.duplicates = sequencer.duplicates
        self.copies_again = sequencer.copies_again
        self.copies_too_late = sequencer.copies_too_late
        self.buckets = len(memory.wheel.buckets)

    @property
    def backlog(self) -> int:
        """The arrivals that wait for their number."""
        return self.at_hand + self.ready
