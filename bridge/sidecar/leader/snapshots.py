"""When to write a snapshot to the journal, and how far before it a successor must read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer

ENTRIES = 2_000
BYTES = 16 << 20
ENTRIES_MAX = 20_000
"""A snapshot is written after `ENTRIES` entries of the journal or `BYTES` bytes. After a large
snapshot the next one waits until the journal has grown by twice that size or by `ENTRIES_MAX`
entries."""

MARGIN_S = 2.0
"""An ack that is younger than this when RabbitMQ fails may not have reached the inbox."""


class Snapshots:
    """Decides by the growth of a sequencer's journal when a snapshot is due, and makes it."""

    def __init__(
        self, sequencer: Sequencer, term: bytes, boot: str, time_s: Callable[[], float]
    ) -> None:
        self._sequencer = sequencer
        self._term = term
        self._boot = boot
        self._time_s = time_s
        self._entries = sequencer.journal.entries
        self._bytes = sequencer.journal.bytes
        self._size = 0
        self._has_inherited = False
        self._unacked: deque[tuple[float, int]] = deque()

    @property
    def is_due(self) -> bool:
        """Whether the journal has grown enough, or inherited memory was dropped since the last."""
        if self._has_inherited and not self._sequencer.memory.has_inherited:
            return True
        entries = self._sequencer.journal.entries - self._entries
        grown = self._sequencer.journal.bytes - self._bytes
        if entries < ENTRIES and grown < BYTES:
            return False
        return grown >= 2 * self._size or entries >= ENTRIES_MAX

    def take(self, first_entry: int) -> list[Publication]:
        """Return the entries of a snapshot.

        Args:
            first_entry: the entry of the oldest arrival that is not acked.
        """
        sequencer = self._sequencer
        span = sequencer.journal.entries - min(first_entry, self._before_margin(first_entry))
        parts = sequencer.snapshot(self._term, self._boot, span)
        self._entries, self._bytes = sequencer.journal.entries, sequencer.journal.bytes
        self._size = sum(len(part.body) for part in parts)
        self._has_inherited = sequencer.memory.has_inherited
        return parts

    def _before_margin(self, first_entry: int) -> int:
        """Return the entry of the oldest arrival that was not acked `MARGIN_S` ago.

        The acks of all older ones have surely reached RabbitMQ by now.
        """
        now_s = self._time_s()
        unacked = self._unacked
        unacked.append((now_s, first_entry))
        while len(unacked) > 1 and now_s - unacked[1][0] > MARGIN_S:
            unacked.popleft()
        # With one measurement only: all entries since the last snapshot may count.
        return self._entries if len(unacked) == 1 else unacked[0][1]
