"""The engine's verbs for transactions, as a protocol and values for gateways.

A gateway buffers the operations of a transaction; the engine commits all of them, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from bridge.message.envelopes import Outgoing
from bridge.model.entity import Tier
from bridge.model.name import EntityPath
from bridge.wire.envelope import Item

if TYPE_CHECKING:
    from bridge.engine.api import Disposition


@dataclass(frozen=True, slots=True)
class PreparedSend:
    """Messages that a transaction sends to one entity, checked; made by `prepare`.

    Attributes:
        target: the queue or topic that gets them.
        items: the messages, in order.
        size_bytes: what they take in the envelope of the commit.
    """

    target: EntityPath
    items: Sequence[Item]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PreparedSchedule:
    """Messages that a transaction schedules, checked; made by `reserve`.

    Attributes:
        target: the pinned queue or topic.
        items: the messages, in order.
        numbers: the sequence number that was reserved for each.
        size_bytes: what they take in the envelope of the commit.
        incarnation: the entity's that has reserved the numbers.
    """

    target: EntityPath
    items: Sequence[Item]
    numbers: Sequence[int]
    size_bytes: int
    incarnation: str


@dataclass(frozen=True, slots=True, eq=False)
class PinnedLock:
    """A lock that a transaction keeps; made by `pin`.

    Attributes:
        path: the queue, subscription or dead-letter sub-queue of the message.
    """

    path: EntityPath
    lock_token: UUID


@dataclass(frozen=True, slots=True, eq=False)
class PinnedSession:
    """A session that a transaction keeps, to give it a state; made by `set_state`.

    Attributes:
        path: the queue or subscription.
        state: what the session gets; `None` clears it.
    """

    path: EntityPath
    session_id: str
    state: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionWork:
    """What a commit carries out, in the order of the operations.

    Attributes:
        identity: 16 random bytes, the transaction's id.
        pinned: the queue or topic whose transaction it is, without a sub-queue.
        sends: messages for the pinned entity, and for others.
        settlements: each pinned lock once.
        states: the states that sessions get; of two for a session the later one counts.
        cancels: the numbers of scheduled messages of the pinned entity, its own included.
        schedules: messages that the pinned entity gets later.
    """

    identity: bytes
    pinned: EntityPath
    sends: Sequence[PreparedSend] = ()
    settlements: Sequence[tuple[PinnedLock, Disposition]] = ()
    cancels: Sequence[int] = ()
    states: Sequence[PinnedSession] = ()
    schedules: Sequence[PreparedSchedule] = ()


class TransactionVerbs(Protocol):
    """The verbs of transactions."""

    @property
    def tier(self) -> Tier:
        """The namespace's tier: the Basic one has no transactions."""

    def check(self) -> None:
        """Raise what keeps a transaction from being declared now.

        Raises:
            ServerBusy: a bridge of the namespace does not know transactions.
        """

    def prepare(
        self, pinned: EntityPath, target: EntityPath, batch: Sequence[Outgoing]
    ) -> PreparedSend:
        """Check messages that a transaction sends; nothing is sent.

        Args:
            pinned: the queue or topic whose transaction it is.
            target: the queue or topic that gets them; another one than `pinned` gets them by way of
                that.

        Raises:
            ServiceBusError: as for `NamespaceVerbs.begin_sending`.
        """

    def pin_here(self, path: EntityPath, lock_token: UUID) -> PinnedLock | None:
        """As `pin`, at once; `None`: it is a lock of another bridge, which has to be asked."""

    async def reserve(self, pinned: EntityPath, batch: Sequence[Outgoing]) -> PreparedSchedule:
        """Check messages that a transaction schedules, and reserve their sequence numbers.

        Nobody else gets the numbers, whatever becomes of the transaction.

        Raises:
            ServiceBusError: as for `NamespaceVerbs.schedule`.
        """

    async def pin(self, path: EntityPath, lock_token: UUID) -> PinnedLock:
        """Keep a lock until `commit` or `release`, for 150 s at most.

        Until then neither its time nor a settlement outside of the transaction ends it.

        Raises:
            MessageLockLost: the lock has ended, or another transaction has pinned it.
            ServerBusy, OperationTimeout: another bridge holds the message, and does not answer.
        """

    def release(self, pins: Iterable[PinnedLock]) -> None:
        """Let locks go on with the time that they had left when they were pinned, 1 s at least.

        Locks of this process can be settled as soon as this returns.
        """

    async def set_state(
        self, transaction: bytes, path: EntityPath, session_id: str, state: bytes | None
    ) -> PinnedSession:
        """Keep a session that a receiver holds until `commit` or `release_sessions`, 150 s at most.

        Until then its lock does not end by time, its state changes for no other reason, and nobody
        else gets the session when its receiver has given it up.

        Args:
            transaction: the transaction's id; it may set a session's state more than once.
            state: what the session gets by the commit; `None` clears it.

        Raises:
            SessionLockLost: no receiver holds the session.
            MessageSizeExceeded: the state is too large.
            ServerBusy, OperationTimeout: another transaction has the session, or its owner does not
                answer.
        """

    def state_in(
        self, transaction: bytes, path: EntityPath, session_id: str
    ) -> PinnedSession | None:
        """Return a session with the state that a transaction is to give it; `None`: none."""

    def release_sessions(self, pins: Iterable[PinnedSession]) -> None:
        """Let sessions go, with the states that they had."""

    def size_bytes(self, work: TransactionWork) -> int:
        """Return the size of a commit as RabbitMQ gets it; `bytes_max` is the most."""

    @property
    def bytes_max(self) -> int:
        """RabbitMQ's largest message (`max_message_size`)."""

    async def commit(self, work: TransactionWork) -> None:
        """Carry out all, or nothing; the locks are the engine's from the call on.

        Returns when a crash can no longer undo it, and the settlements of this process's locks are
        written.

        Raises:
            TransactionRolledBack: nothing was carried out, nor will be; the locks are released.
            TransactionInDoubt: no answer has come in 20 s. The engine goes on asking, and keeps the
                locks until it knows.
        """
