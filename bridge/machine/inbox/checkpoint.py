"""Checkpoints: what a sequencer's command changes, noted before, and undone when it fails."""

from __future__ import annotations

from bridge.machine.inbox.arrival import Command, SendCommand
from bridge.machine.inbox.journal_entries import JournalEntries
from bridge.machine.inbox.sequencer_memory import Memory
from bridge.wire.envelope import SOURCE_BYTES


class Checkpoint:
    """The state of a sequencer before a command.

    Attributes:
        counts: what the sequencer has dropped.
        accepted, activated: its lists' lengths.
    """

    __slots__ = (
        "_counters",
        "_relayed",
        "_skipped",
        "_subscriptions",
        "_written",
        "accepted",
        "activated",
        "counts",
    )

    def __init__(
        self,
        memory: Memory,
        journal: JournalEntries,
        counts: tuple[int, int, int],
        accepted: int,
        activated: int,
    ) -> None:
        self._counters = memory.counters[:]
        self._subscriptions = memory.subscriptions.copy()
        self._relayed = memory.relayed.noted
        self._skipped = memory.skipped.copy()
        self._written = memory.enqueued_ms, journal.entries, journal.bytes
        self.counts = counts
        self.accepted = accepted
        self.activated = activated

    def restore(self, memory: Memory, journal: JournalEntries, command: Command | None) -> None:
        """Undo what a failed command has changed in counters, journal and waiting messages.

        Args:
            command: `None`: a scheduled message was due.
        """
        if type(command) is SendCommand and command.identity is not None:
            for item in command.items:
                if item.source is not None and len(item.source) == SOURCE_BYTES:
                    memory.forwarded.take_back(item.source, command.identity)
        memory.relayed.take_back(self._relayed)
        memory.subscriptions.clear()
        memory.subscriptions.update(self._subscriptions)
        memory.skipped.clear()
        memory.skipped.update(self._skipped)
        for last, first in zip(memory.counters, self._counters, strict=True):
            memory.pending.remove_between(first + 1, last)
        memory.counters[:] = self._counters
        memory.enqueued_ms, journal.entries, journal.bytes = self._written
