"""The queues of deferred messages that imports need: made before their first message is published.

RabbitMQ confirms what the journal takes, also when the queue beside it is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from typing import Protocol

from bridge.broker.ready_counts import queue_state
from bridge.machine.inbox.arrival import Command, ImportCommand
from bridge.machine.inbox.sequencer import Sequencer
from bridge.sidecar.leader.awaited_queue import WaitingTerm, await_made
from bridge.topology import parts
from bridge.wire.gaps import OWN
from bridge.wire.imported import DEFERRED

MAKES = "the queue of deferred messages is being made, for messages that are imported"


class ImportingTerm(WaitingTerm, Protocol):
    """The term that imports; see `leader.Leader`."""

    sequencer: Sequencer

    def start(self, work: Coroutine[None, None, None]) -> object:
        """Start work as a task of the term."""

    def go_on(self) -> None:
        """Carry out waiting arrivals."""


class DeferredQueues:
    """The queues of deferred messages, as one term has made them.

    Attributes:
        is_on: some are being made: nothing may be numbered.
    """

    def __init__(self, leader: ImportingTerm) -> None:
        self.is_on = False
        self._leader = leader
        self._made: set[bytes] = set()

    def __repr__(self) -> str:
        return f"DeferredQueues({self._leader.name!r}, {len(self._made)} made, is_on={self.is_on})"

    def must_wait(self, command: Command) -> bool:
        """Whether a command needs queues that are not made yet: then they are made."""
        if type(command) is not ImportCommand:
            return False
        needed = {
            item.imported.short
            for item in command.items
            if item.imported is not None and item.imported.state == DEFERRED
        } - self._made
        if not needed:
            return False
        self.is_on = True
        self._leader.start(self._make(needed))
        return True

    async def _make(self, needed: Collection[bytes]) -> None:
        """Make queues, and have the sequencer know how many messages they have already."""
        leader = self._leader
        for short in needed:
            path = self._path_of(short)
            if path is not None:
                queue = parts.deferred_queue(path)
                await await_made(leader, queue, MAKES)
                with await leader.connection.channel() as channel:
                    state = await queue_state(channel, queue.name)
                leader.sequencer.memory.imported.expect_deferred(short, state.messages)
            self._made.add(short)
        self.is_on = False
        leader.go_on()

    def _path_of(self, short: bytes) -> str | None:
        """Return the path of an entity; `None`: there is no such, and the transfer is refused."""
        if short == OWN:
            return self._leader.name
        fanout = self._leader.sequencer.fanout
        return None if fanout is None else fanout.path_of(short)
