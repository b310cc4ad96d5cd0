"""The queue of an entity's messages for other entities, which the first commit with any makes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Protocol

from bridge.machine.inbox.arrival import Command, Commit, TransactionCommand
from bridge.sidecar.leader.awaited_queue import WaitingTerm, await_made
from bridge.topology import parts

MAKES = "the transfer queue is being made, for messages of a transaction for other entities"


class TransferringTerm(WaitingTerm, Protocol):
    """The term that carries out commits; see `leader.Leader`."""

    def start(self, work: Coroutine[None, None, None]) -> object:
        """Start work as a task of the term."""

    def go_on(self) -> None:
        """Carry out waiting arrivals."""


class TransferQueue:
    """The transfer queue, as one term knows it.

    A publish to a queue that is not there would end the term, and the next one by the same arrival.
    """

    def __init__(self, leader: TransferringTerm) -> None:
        self._leader = leader
        self._is_there = False
        self._is_being_made = False

    def __repr__(self) -> str:
        return f"TransferQueue({self._leader.name!r}, is_there={self._is_there})"

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
        self._leader.go_on()
