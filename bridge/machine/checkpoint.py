"""Checkpoints: what a sequencer's command changes, noted before, and undone when it fails."""

from __future__ import annotations

from bridge.machine.arrival import Command, Send
from bridge.machine.journal_entries import JournalEntries
from bridge.machine.sequencer_memory import Memory


class Checkpoint:
    """The state of a sequencer before a command.

    Attributes:
        duplicates, accepted, activated: the sequencer's counts.
    """

    __slots__ = ("_counters", "_subscriptions", "_written", "accepted", "activated", "duplicates")

    def __init__(
        self,
        memory: Memory,
        journal: JournalEntries,
        duplicates: int,
        accepted: int,
        activated: int,
    ) -> None:
        self._counters = memory.counters[:]
        self._subscriptions = memory.subscriptions.copy()
        self._written = memory.enqueued_ms, journal.entries, journal.bytes
        self.duplicates = duplicates
        self.accepted = accepted
        self.activated = activated

    def restore(self, memory: Memory, journal: JournalEntries, command: Command | None) -> None:
        """Undo what a failed command has changed in counters, journal and waiting messages.

        Args:
            command: `None`: a scheduled message was due.
        """
        if type(command) is Send and command.identity is not None:
            for item in command.items:
                if item.source is not None:
                    memory.forwarded.take_back(item.source, command.identity)
        memory.subscriptions.clear()
        memory.subscriptions.update(self._subscriptions)
        for last, first in zip(memory.counters, self._counters, strict=True):
            for number in range(first + 1, last + 1):
                memory.pending.remove(number)
        memory.counters[:] = self._counters
        memory.enqueued_ms, journal.entries, journal.bytes = self._written
