"""The engine's verbs of transactions in memory, on the queues of a `MemoryNamespace`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from bridge.engine.transaction_verbs import (
    PinnedLock,
    PinnedSession,
    PreparedSchedule,
    PreparedSend,
    TransactionWork,
)
from bridge.message.envelopes import Outgoing
from bridge.model.entity import Tier
from bridge.model.errors import (
    MessageNotFound,
    MessageSizeExceeded,
    ServiceBusError,
    TransactionRolledBack,
)
from bridge.model.name import EntityPath

if TYPE_CHECKING:
    from tests.bench.memory_namespace import MemoryNamespace


@dataclass(frozen=True, slots=True)
class MemorySend(PreparedSend):
    """A prepared send that keeps its messages as the queues take them."""

    batch: Sequence[Outgoing] = ()


class MemoryTransactions:
    """Transactions of a namespace in memory: a commit carries out all at once, or nothing.

    Attributes:
        tier: the namespace's tier.
        bytes_max: the largest commit.
        commits: what was committed, in order.
        declares_refused: why no transaction can be declared; `None` if it can.
        sessions: the sessions that transactions keep.
        commits_end: how the next commits fail: nothing of them is carried out; `None`: they do not.
    """

    def __init__(self, namespace: MemoryNamespace) -> None:
        self.tier = Tier.STANDARD
        self.bytes_max = 1_000_000
        self.commits: list[TransactionWork] = []
        self.declares_refused: ServiceBusError | None = None
        self.commits_end: ServiceBusError | None = None
        self.sessions: list[tuple[bytes, PinnedSession]] = []
        self._scheduled: dict[int, Outgoing] = {}
        self._namespace = namespace

    def check(self) -> None:
        """Raise what refuses a declare."""
        if self.declares_refused is not None:
            raise self.declares_refused

    def prepare(
        self, pinned: EntityPath, target: EntityPath, batch: Sequence[Outgoing]
    ) -> PreparedSend:
        """Check the sizes of messages."""
        most_bytes = self._namespace.message_bytes_max(target)
        size_bytes = sum(each.size_bytes for each in batch)
        if any(each.size_bytes > most_bytes for each in batch):
            raise MessageSizeExceeded("A message is too large.")
        return MemorySend(target=target, items=(), size_bytes=size_bytes, batch=batch)

    async def reserve(self, pinned: EntityPath, batch: Sequence[Outgoing]) -> PreparedSchedule:
        """Give numbers to messages."""
        numbers = [self._namespace.queue(pinned).reserve() for _ in batch]
        self._scheduled |= dict(zip(numbers, batch, strict=True))
        size_bytes = sum(each.size_bytes for each in batch)
        return PreparedSchedule(pinned, (), numbers, size_bytes, "")

    def pin_here(self, path: EntityPath, lock_token: UUID) -> PinnedLock:
        """Keep a lock."""
        self._namespace.queue(path).pin(lock_token)
        return PinnedLock(path, lock_token)

    async def pin(self, path: EntityPath, lock_token: UUID) -> PinnedLock:
        """Keep a lock."""
        return self.pin_here(path, lock_token)

    def release(self, pins: Iterable[PinnedLock]) -> None:
        """Let locks go on."""
        for each in pins:
            self._namespace.queue(each.path).unpin(each.lock_token)

    async def set_state(
        self, transaction: bytes, path: EntityPath, session_id: str, state: bytes | None
    ) -> PinnedSession:
        """Keep a session."""
        await self._namespace.session_state(path, session_id)
        pin = PinnedSession(path, session_id, state)
        self.sessions.append((transaction, pin))
        return pin

    def state_in(
        self, transaction: bytes, path: EntityPath, session_id: str
    ) -> PinnedSession | None:
        """Return what a session is to get."""
        found = [
            pin
            for each, pin in self.sessions
            if (each, pin.path, pin.session_id) == (transaction, path, session_id)
        ]
        return found[-1] if found else None

    def release_sessions(self, pins: Iterable[PinnedSession]) -> None:
        """Let sessions go."""
        gone = list(pins)
        self.sessions = [each for each in self.sessions if each[1] not in gone]

    def size_bytes(self, work: TransactionWork) -> int:
        """Return the size of the messages."""
        sends, schedules = work.sends, work.schedules
        return sum(each.size_bytes for each in sends) + sum(each.size_bytes for each in schedules)

    async def commit(self, work: TransactionWork) -> None:
        """Carry out a commit."""
        self.release(pin for pin, _ in work.settlements)
        self.release_sessions(work.states)
        if self.commits_end is not None:
            raise self.commits_end
        queue = self._namespace.queue(work.pinned)
        own = {number for each in work.schedules for number in each.numbers}
        try:
            queue.cancel([each for each in work.cancels if each not in own])
        except MessageNotFound as error:
            raise TransactionRolledBack(str(error)) from error
        self.commits.append(work)
        for number in own.difference(work.cancels):
            queue.schedule(self._scheduled[number], number)
        for send in work.sends:
            assert isinstance(send, MemorySend)
            await self._namespace.send(send.target, send.batch)
        for pin, disposition in work.settlements:
            await self._namespace.settle(pin.path, pin.lock_token, disposition)
        for state in work.states:
            await self._namespace.set_session_state(state.path, state.session_id, state.state)
