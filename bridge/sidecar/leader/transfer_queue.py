"""The queue of an entity's messages for other entities, which the first commit with any makes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Protocol

from bridge.broker.connection.address import HasChannels
from bridge.broker.queue_on_use import make_on_use
from bridge.machine.inbox.arrival import Command, Commit, TransactionCommand
from bridge.topology import names, parts


class TransferringTerm(Protocol):
    """The term that carries out commits; see `leader.Leader`."""

    name: str

    def start(self, work: Coroutine[None, None, None]) -> object:
        """Start work as a task of the term."""

    def go_on(self) -> None:
        """Carry out waiting arrivals."""


class TransferQueue:
    """The transfer queue, as one term knows it.

    A publish to a queue that is not there would end the term, and the next one by the same arrival.
    """

    def __init__(self, leader: TransferringTerm, connection: HasChannels) -> None:
        self._leader = leader
        self._connection = connection
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
        name = self._leader.name
        queue = parts.transfer_queue(name)
        await make_on_use(self._connection, queue, names.active_exchange(name))
        self._is_there = True
        self._leader.go_on()
