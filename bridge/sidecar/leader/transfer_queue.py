"""The queue of an entity's messages for other entities, which the first commit with any makes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Protocol

from bridge.broker.connection.address import is_there
from bridge.machine.inbox.arrival import Command, Commit, TransactionCommand
from bridge.machine.inbox.sequencer import Sequencer
from bridge.sidecar.leader.awaited_queue import WaitingTerm, await_made
from bridge.topology import names, parts

MAKES = "the transfer queue is being made, for messages of a transaction for other entities"


class TransferringTerm(WaitingTerm, Protocol):
    """The term that carries out commits; see `leader.Leader`."""

    sequencer: Sequencer

    def start(self, work: Coroutine[None, None, None]) -> object:
        """Start work as a task of the term."""

    def go_on(self) -> None:
        """Carry out waiting arrivals."""


class TransferQueue:
    """The transfer queue, as one term knows it.

    A publish to a queue that is not there would end the term, and the next one by the same arrival.

    Args:
        on_there: called with the entity's name when it is known that the queue is there.
    """

    def __init__(self, leader: TransferringTerm, on_there: Callable[[str], None]) -> None:
        self._leader = leader
        self._on_there = on_there
        self._is_there = False
        self._is_being_made = False

    def __repr__(self) -> str:
        return f"TransferQueue({self._leader.name!r}, is_there={self._is_there})"

    def begin(self) -> None:
        """Look for the queue of earlier terms, if the entity ever had a transaction."""
        if self._leader.sequencer.memory.decided.has_any:
            self._leader.start(self._look())

    async def _look(self) -> None:
        leader = self._leader
        if await is_there(leader.connection, names.transfer_queue(leader.name)):
            self._on_there(leader.name)

    def must_wait(self, command: Command | TransactionCommand) -> bool:
        """Whether a command has transfers, and their queue is not there yet: then it is made."""
        if type(command) is not Commit or not command.content.transfers or self._is_there:
            return False
        if not self._is_being_made:
            self._is_being_made = True
            self._leader.start(self._make())
        return True

    async def _make(self) -> None:
        await await_made(self._leader, parts.transfer_queue(self._leader.name), MAKES)
        self._is_there = True
        self._on_there(self._leader.name)
        self._leader.go_on()
