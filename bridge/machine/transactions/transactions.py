"""The transactions of one connection: a machine without I/O.

Coordinators declare and discharge; links of any session of the connection operate in what they
have declared. An operation is checked first (`Enlist`), then answered; it is carried out when the
commit is, all or none.

**One entity.** The first operation pins the queue or topic of a transaction. Operations on others
are refused, but for sends in a session across entities (`cross_entity`).

**The end.** A refused operation dooms the transaction: some clients do not look at an operation's
outcome. A commit waits for the checks under way. Rolled back is what is not discharged in time, or
whose coordinator has gone; what its operations have pinned is as it was before. A commit that was
asked for ends by its answer alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from bridge.machine.transactions import refusals
from bridge.machine.transactions.cross_entity import CrossEntitySessions
from bridge.machine.transactions.effects import (
    Answer,
    AskForCommit,
    CommitEnd,
    EndCoordinator,
    Enlist,
    Refuse,
    TransactionEffect,
    Unpin,
)
from bridge.machine.transactions.held_bytes import HeldBytes
from bridge.machine.transactions.limits import (
    HELD_BYTES_MAX,
    MESSAGES_MAX,
    OPEN_MAX,
    OPERATION_BYTES,
    TIMEOUT_MS,
)
from bridge.machine.transactions.operations import PINNING, TransactedOperation, TransactedVerb
from bridge.machine.transactions.transaction import Transaction
from bridge.model.entity import Tier
from bridge.model.errors import ServiceBusError
from bridge.wire.amqp10.performatives import Accepted, Declared, TransactionalState


class Transactions:
    """The transactions of a connection.

    Args:
        bytes_max: the largest commit; each operation counts its size and `OPERATION_BYTES`.
        timeout_ms: see `TIMEOUT_MS`.
        messages_max: see `MESSAGES_MAX`.
        open_max: see `OPEN_MAX`.
        held_bytes_max: see `HELD_BYTES_MAX`.
        of_all: what all connections hold together; `None`: there is no other connection.

    Attributes:
        sessions: the sessions of the connection, as far as transactions depend on them.
        due: effects that are to be carried out, in order; whoever carries them out clears it.
    """

    def __init__(
        self,
        bytes_max: int,
        *,
        timeout_ms: int = TIMEOUT_MS,
        messages_max: int = MESSAGES_MAX,
        open_max: int = OPEN_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
        of_all: HeldBytes | None = None,
    ) -> None:
        self.due: list[TransactionEffect] = []
        self._bytes_max = bytes_max
        self._timeout_ms = timeout_ms
        self._messages_max = messages_max
        self._open_max = open_max
        self._held = HeldBytes(held_bytes_max, of_all)
        self._open: dict[bytes, Transaction] = {}
        self._begun: dict[bytes, Transaction] = {}  # those with operations, the first to end first
        self._asked: dict[bytes, Transaction] = {}
        self.sessions = CrossEntitySessions()

    @property
    def held_bytes(self) -> int:
        """The bytes of all operations that wait for the end of their transactions."""
        return self._held.held

    def __len__(self) -> int:
        """Return how many transactions are not discharged, or not answered yet."""
        return len(self._open) + len(self._asked)

    @property
    def is_busy(self) -> bool:
        """Whether a transaction has operations, or its commit is not answered."""
        return bool(self._asked) or any(each.operations for each in self._open.values())

    def __contains__(self, txn_id: bytes) -> bool:
        return txn_id in self._open

    def __repr__(self) -> str:
        return f"<Transactions open={len(self._open)} asked={len(self._asked)}>"

    # Coordinators.

    def declare(self, coordinator: Hashable, asker: Any, txn_id: bytes, tier: Tier) -> None:
        """Declare a transaction.

        Args:
            coordinator: the link that asks, which is to discharge the transaction.
            txn_id: random bytes that no other transaction has.
        """
        assert txn_id not in self._open
        assert txn_id not in self._asked
        if tier is Tier.BASIC:
            self.due.append(Refuse(asker, None, refusals.not_in_basic()))
        elif len(self) >= self._open_max:
            error = refusals.too_many_transactions(self._open_max)
            self.due.append(Refuse(asker, None, error))
        else:
            self._open[txn_id] = Transaction(txn_id, coordinator)
            self.due.append(Answer(asker, Declared(txn_id)))

    def discharge(
        self, coordinator: Hashable, asker: Any, txn_id: bytes, *, is_failed: bool, now_ms: int
    ) -> None:
        """Commit a transaction, or (`is_failed`) roll it back."""
        self.expire(now_ms)
        transaction = self._open.get(txn_id)
        if (
            transaction is None
            or transaction.coordinator != coordinator
            or transaction.is_discharged
        ):
            self.due.append(Refuse(asker, None, refusals.not_to_discharge()))
            return
        transaction.discharger = asker
        transaction.is_discharged = True
        if is_failed:
            self._roll_back(transaction)
            self._forget(transaction)
            self.due.append(Answer(asker, Accepted()))
        else:
            self._go_on(transaction)

    def coordinator_closed(self, coordinator: Hashable) -> None:
        """Roll back what a coordinator has declared and not discharged: its link has ended."""
        for transaction in list(self._open.values()):
            if transaction.coordinator == coordinator:
                self._roll_back(transaction)
                self._forget(transaction)
        for transaction in self._asked.values():
            if transaction.coordinator == coordinator:
                transaction.coordinator = None

    def close(self) -> None:
        """Roll back all that is not discharged: the connection has ended.

        Checks and commits under way are still to be answered.
        """
        for transaction in list(self._open.values()):
            self._roll_back(transaction)
            self._forget(transaction)
        for transaction in self._asked.values():
            transaction.coordinator = None
        self.sessions.clear()

    # Operations.

    def operate(
        self, session: Hashable, txn_id: bytes, operation: TransactedOperation, now_ms: int
    ) -> None:
        """Take an operation of a link of `session`: it is enlisted, or refused at once."""
        self.expire(now_ms)
        transaction = self._open.get(txn_id)
        if transaction is None or transaction.is_discharged:
            self.due.append(Refuse(operation.asker, txn_id, refusals.not_declared()))
            return
        if transaction.ends_ms is None:
            transaction.ends_ms = now_ms + self._timeout_ms
            self._begun[txn_id] = transaction
        refused = self._refusal(transaction, session, operation)
        if refused is not None:
            transaction.fail(refused)
            self.due.append(Refuse(operation.asker, txn_id, refused))
            return
        size_bytes = operation.size_bytes + OPERATION_BYTES
        transaction.message_count += operation.message_count
        transaction.size_bytes += size_bytes
        self._held.change(size_bytes)
        operation.transaction = transaction
        transaction.operations.append(operation)
        transaction.pending.add(operation)
        self.due.append(Enlist(operation, transaction.entity))

    def _refusal(
        self, transaction: Transaction, session: Hashable, operation: TransactedOperation
    ) -> ServiceBusError | None:
        """Return why an operation is refused; pin the transaction's entity if it is the first."""
        if transaction.is_over:
            return refusals.late_operation(transaction.id, self._timeout_ms)
        if transaction.doom is not None:
            return refusals.rolled_back(transaction.doom)
        via = self.sessions.via(session) or operation.entity
        if operation.verb is not TransactedVerb.SEND and operation.entity != via:
            return refusals.several_entities()
        if transaction.entity and transaction.entity != via:
            return refusals.several_entities()
        transaction.entity = via
        return self._refusal_of_more(
            transaction, operation.message_count, operation.size_bytes + OPERATION_BYTES
        )

    def _refusal_of_more(
        self, transaction: Transaction, more_messages: int, more_bytes: int
    ) -> ServiceBusError | None:
        if more_messages > 0 and transaction.message_count + more_messages > self._messages_max:
            return refusals.too_many_messages(self._messages_max)
        size_bytes = transaction.size_bytes + more_bytes
        if more_bytes > 0 and size_bytes > self._bytes_max:
            return refusals.too_large(size_bytes, self._bytes_max)
        return self._held.refusal_of(more_bytes)

    def enlisted(
        self,
        operation: TransactedOperation,
        found: Any = None,
        size_bytes: int | None = None,
        message_count: int | None = None,
    ) -> None:
        """Note that an operation was checked, and has pinned what it needs.

        Args:
            found: see `TransactedOperation`.
            size_bytes: its size in the commit, if that is known only now.
            message_count: its messages, if they were counted only now, as those of a large batch.
        """
        transaction = operation.end_check()
        operation.found = found
        if transaction.is_over:
            refused: ServiceBusError | None = refusals.ended()
        else:
            refused = self._measure(transaction, operation, size_bytes, message_count)
        if refused is not None:
            if operation.verb in PINNING:
                self.due.append(Unpin(operation))
            self._refuse_checked(transaction, operation, refused)
            return
        if operation.verb is TransactedVerb.RENEW:
            self._drop(transaction, operation)
        state = TransactionalState(transaction.id, operation.outcome)
        self.due.append(Answer(operation.asker, state))
        self._go_on(transaction)

    def refused(self, operation: TransactedOperation, error: ServiceBusError) -> None:
        """Note that an operation was refused when it was checked: it has pinned nothing."""
        self._refuse_checked(operation.end_check(), operation, error)

    def _measure(
        self,
        transaction: Transaction,
        operation: TransactedOperation,
        size_bytes: int | None,
        message_count: int | None,
    ) -> ServiceBusError | None:
        """Take over the size of an operation and its messages; return why that is too much."""
        more_bytes = 0 if size_bytes is None else size_bytes - operation.size_bytes
        more_messages = 0 if message_count is None else message_count - operation.message_count
        refused = self._refusal_of_more(transaction, more_messages, more_bytes)
        if refused is None:
            operation.size_bytes += more_bytes
            operation.message_count += more_messages
            transaction.size_bytes += more_bytes
            transaction.message_count += more_messages
            self._held.change(more_bytes)
        return refused

    def _refuse_checked(
        self, transaction: Transaction, operation: TransactedOperation, error: ServiceBusError
    ) -> None:
        self.due.append(Refuse(operation.asker, transaction.id, error))
        if not transaction.is_over:
            self._drop(transaction, operation)
            transaction.fail(error)
            self._go_on(transaction)

    def lost(self, operation: TransactedOperation, error: ServiceBusError) -> None:
        """Note that what an enlisted operation had pinned is there no more: its lock is lost.

        A commit that is asked for already decides by itself.
        """
        transaction = operation.transaction
        if transaction is None or transaction.is_over or transaction.is_asked:
            return
        if operation in transaction.operations and operation not in transaction.pending:
            self._drop(transaction, operation)
            transaction.fail(error)
            self._go_on(transaction)

    def doom(self, txn_id: bytes, error: ServiceBusError) -> None:
        """Keep a transaction from being committed: what was to be part of it has not come."""
        transaction = self._open.get(txn_id)
        if transaction is not None:
            transaction.fail(error)

    # Commits.

    def commit_ended(
        self, txn_id: bytes, end: CommitEnd, error: ServiceBusError | None = None
    ) -> None:
        """Note what became of a commit that was asked for.

        Args:
            error: the reason, unless it was accepted.
        """
        transaction = self._asked.pop(txn_id)
        self._held.change(-transaction.size_bytes)
        coordinator = transaction.coordinator
        transaction.is_over = True
        if coordinator is None:
            return
        if end is CommitEnd.ACCEPTED:
            self.due.append(Answer(transaction.discharger, Accepted()))
            return
        assert error is not None
        if end is CommitEnd.REFUSED:
            self.due.append(Refuse(transaction.discharger, None, refusals.rolled_back(error)))
        else:
            self.due.append(EndCoordinator(coordinator, error))
            self.coordinator_closed(coordinator)

    # Time.

    def due_ms(self) -> int | None:
        """Return when `expire` is due if nothing happens before; `None` for never."""
        first = next(iter(self._begun.values()), None)
        return None if first is None else first.ends_ms

    def expire(self, now_ms: int) -> None:
        """Roll back the transactions whose time is over."""
        while (ends_ms := self.due_ms()) is not None and ends_ms <= now_ms:
            transaction = next(iter(self._begun.values()))
            del self._begun[transaction.id]
            self._roll_back(transaction)
            if transaction.is_discharged:  # it waits for checks that take too long
                self._refuse_late(transaction)

    # Ends.

    def _forget(self, transaction: Transaction) -> None:
        """Forget a transaction that has ended, or whose commit is asked for."""
        del self._open[transaction.id]
        self._begun.pop(transaction.id, None)

    def _go_on(self, transaction: Transaction) -> None:
        """Commit a transaction that is discharged, if nothing is left to be waited for."""
        if not transaction.is_discharged:
            return
        if transaction.is_over:
            self._refuse_late(transaction)
        elif transaction.doom is not None:
            doom = transaction.doom
            self._roll_back(transaction)
            self._forget(transaction)
            self.due.append(Refuse(transaction.discharger, None, refusals.rolled_back(doom)))
        elif not transaction.operations:
            self._forget(transaction)
            self.due.append(Answer(transaction.discharger, Accepted()))
        elif not transaction.pending:
            self._forget(transaction)
            self._asked[transaction.id] = transaction
            transaction.is_asked = True
            operations = tuple(transaction.operations)
            self.due.append(AskForCommit(transaction.id, transaction.entity, operations))

    def _refuse_late(self, transaction: Transaction) -> None:
        self._forget(transaction)
        error = refusals.late_discharge(transaction.id, self._timeout_ms)
        self.due.append(Refuse(transaction.discharger, None, error))

    def _roll_back(self, transaction: Transaction) -> None:
        """Let go all that is pinned; checks under way are undone when they end."""
        if transaction.is_over:
            return
        transaction.is_over = True
        self._held.change(-transaction.size_bytes)
        self._unpin(transaction)

    def _unpin(self, transaction: Transaction) -> None:
        for operation in transaction.operations:
            if operation.verb in PINNING and operation not in transaction.pending:
                self.due.append(Unpin(operation))
        transaction.operations = []

    def _drop(self, transaction: Transaction, operation: TransactedOperation) -> None:
        transaction.operations.remove(operation)
        size_bytes = operation.size_bytes + OPERATION_BYTES
        transaction.size_bytes -= size_bytes
        self._held.change(-size_bytes)
