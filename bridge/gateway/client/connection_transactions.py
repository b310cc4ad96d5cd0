"""The transactions of one connection: what their machine asks for, done by the engine's verbs.

An operation is told to the machine when it comes, and checked then: at once, or in a task if that
takes long or asks others. So a discharge that comes right behind it waits for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, assert_never
from uuid import UUID

from bridge.engine.api import Abandon, Disposition
from bridge.engine.transaction_verbs import (
    PinnedLock,
    PinnedSession,
    PreparedSchedule,
    PreparedSend,
    TransactionVerbs,
    TransactionWork,
)
from bridge.gateway.client.links import EntityLink
from bridge.gateway.client.reply_links import ReplyLink
from bridge.machine.amqp10.link import Link
from bridge.machine.amqp10.session import AmqpSession
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
from bridge.machine.transactions.operations import TransactedOperation, TransactedVerb
from bridge.machine.transactions.transactions import Transactions
from bridge.model.errors import (
    EntityNotFound,
    InternalError,
    ServiceBusError,
    TransactionInDoubt,
    TransactionRolledBack,
)
from bridge.model.name import EntityPath
from bridge.wire.amqp10.performatives import Accepted, Declared, TransactionalState

if TYPE_CHECKING:
    from bridge.gateway.client.client import Client


class Asker(Protocol):
    """Who has asked for something in a transaction, and waits for the answer."""

    def answer(self, state: TransactionalState | Declared | Accepted) -> None:
        """Tell the client that it was taken."""

    def refuse(self, txn_id: bytes | None, error: ServiceBusError) -> None:
        """Tell the client why it was refused; `txn_id` names the transaction of an operation."""


class TransactionCoordinator(Hashable, Protocol):
    """A link that declares and discharges transactions."""

    def end(self, error: ServiceBusError) -> None:
        """End the link: nobody knows whether a commit was carried out."""


@dataclass(frozen=True, slots=True)
class PinnedSettlements:
    """What a client wants to become of locked messages.

    Attributes:
        is_forgotten: the client has settled its deliveries, and will do nothing more with them.
    """

    settlements: Sequence[tuple[PinnedLock, Disposition]]
    is_forgotten: bool = False

    @property
    def pins(self) -> list[PinnedLock]:
        """The locks."""
        return [pin for pin, _ in self.settlements]


Found = PreparedSend | PreparedSchedule | PinnedSettlements | PinnedSession | Sequence[int] | None
"""What a check has found: a part of the commit; numbers are those of schedules to cancel."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the check of an operation has found.

    Attributes:
        found: its part of the commit; the numbers are those of schedules to cancel.
        size_bytes: what it takes in the commit, beside `OPERATION_BYTES`.
    """

    found: Found = None
    size_bytes: int = 0
    message_count: int = 0


Check = Callable[[TransactionVerbs, EntityPath], Checked | Coroutine[Any, Any, Checked]]
"""Checks an operation, by the engine's verbs and the pinned entity: at once, or in a task."""


def entity_of(client: Client, path: EntityPath) -> str:
    """Return the key of the entity that an operation is on: a subscription's is its topic's."""
    try:
        return client.namespace.entity(EntityPath(path.entity)).front.lower()
    except EntityNotFound:
        return path.key  # the check says so


class ConnectionTransactions:
    """The transactions of a connection, from its first coordinator on.

    Args:
        verbs: the engine's.
    """

    def __init__(self, client: Client, verbs: TransactionVerbs) -> None:
        self._client = client
        self._verbs = verbs
        self._machine = Transactions(verbs.bytes_max, of_all=client.transacted)
        self._sessions: set[AmqpSession] = set()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_carrying_out = False

    def __repr__(self) -> str:
        return f"<ConnectionTransactions {self._machine!r}>"

    def __contains__(self, txn_id: bytes) -> bool:
        return txn_id in self._machine

    @property
    def is_busy(self) -> bool:
        """Whether a transaction has operations, or its commit is not answered."""
        return self._machine.is_busy

    # -- sessions

    def coordinator_attached(self, link: Link) -> None:
        """Note a coordinator; as a session's first link it makes the session one across entities.

        Links to `$cbs` do not count.
        """
        self._forget_ended()
        session = link.session
        if session not in self._sessions and self._has_entity_links(session):
            self._machine.sessions.link_attached(session, "")
        self._machine.sessions.coordinator_attached(session)
        self._sessions.add(session)

    def _has_entity_links(self, session: AmqpSession) -> bool:
        return any(_is_of_entity(each.owner) for each in session.links.values())

    def link_attached(self, link: Link, path: EntityPath) -> None:
        """Note a link of an entity, or of its `$management`."""
        if link.session in self._sessions:
            self._machine.sessions.link_attached(link.session, entity_of(self._client, path))

    def check_receiver(self, link: Link, path: EntityPath) -> None:
        """Raise NotAllowed if the link's session takes no receiver of an entity."""
        if link.session in self._sessions:
            entity = entity_of(self._client, path)
            refused = self._machine.sessions.refusal_of_receiver(link.session, entity)
            if refused is not None:
                raise refused

    def _forget_ended(self) -> None:
        for session in [each for each in self._sessions if each.is_ended]:
            self._sessions.discard(session)
            self._machine.sessions.ended(session)

    # -- what clients ask for

    def declare(self, coordinator: TransactionCoordinator, asker: Asker) -> None:
        """Declare a transaction."""
        try:
            self._verbs.check()
        except ServiceBusError as error:
            asker.refuse(None, error)
            return
        self._machine.declare(coordinator, asker, os.urandom(16), self._verbs.tier)
        self._carry_out()

    def discharge(
        self, coordinator: TransactionCoordinator, asker: Asker, txn_id: bytes, *, is_failed: bool
    ) -> None:
        """Commit a transaction, or roll it back."""
        self._machine.discharge(
            coordinator, asker, txn_id, is_failed=is_failed, now_ms=self._now_ms()
        )
        self._carry_out()

    def operate(
        self,
        link: Link,
        txn_id: bytes,
        verb: TransactedVerb,
        path: EntityPath,
        asker: Asker,
        check: Check,
        outcome: Any = None,
    ) -> None:
        """Make an operation of a link part of a transaction, or refuse it.

        Args:
            path: the entity that it is on.
            outcome: what it is answered with; by default accepted.
        """
        operation = TransactedOperation(
            verb, entity_of(self._client, path), asker, check, outcome or Accepted()
        )
        self._machine.operate(link.session, txn_id, operation, self._now_ms())
        self._carry_out()

    def doom(self, txn_id: bytes, error: ServiceBusError) -> None:
        """Keep a transaction from being committed: something of it cannot be carried out."""
        self._machine.doom(txn_id, error)

    def coordinator_closed(self, coordinator: TransactionCoordinator) -> None:
        """Roll back what a coordinator has not discharged: its link has ended."""
        self._machine.coordinator_closed(coordinator)
        self._carry_out()

    def close(self) -> None:
        """Roll back all that is not discharged: the connection has ended."""
        self._machine.close()
        self._sessions.clear()
        self._carry_out()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- effects

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _carry_out(self) -> None:
        """Carry out what is due, in order; what is asked for meanwhile comes behind."""
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self._machine.due:
                due, self._machine.due = self._machine.due, []
                for effect in due:
                    self._carry_out_one(effect)
        finally:
            self._is_carrying_out = False
        self._client.flush_soon()
        self._set_timer()

    def _carry_out_one(self, effect: TransactionEffect) -> None:
        try:
            match effect:
                case Enlist():
                    self._enlist(effect)
                case Unpin():
                    self._unpin(effect.operation)
                case AskForCommit():
                    self._client.work.spawn(self._commit(effect))
                case Answer():
                    effect.asker.answer(effect.state)
                case Refuse():
                    effect.asker.refuse(effect.txn_id, effect.error)
                case EndCoordinator():
                    self._end(effect)
                case _:
                    assert_never(effect)
        except Exception:
            # The other effects are those of other transactions.
            self._client.log.exception("transaction.failed")

    def _enlist(self, effect: Enlist) -> None:
        operation = effect.operation
        try:
            checked = operation.content(self._verbs, EntityPath(effect.entity))
        except Exception as error:
            self._machine.refused(operation, self._told(error))
            return
        if isinstance(checked, Checked):
            self._enlisted(operation, checked)
        else:
            self._client.work.spawn(self._await_check(operation, checked))

    async def _await_check(
        self, operation: TransactedOperation, check: Coroutine[Any, Any, Checked]
    ) -> None:
        try:
            checked = await check
        except Exception as error:
            self._machine.refused(operation, self._told(error))
        else:
            self._enlisted(operation, checked)
        self._carry_out()

    def _enlisted(self, operation: TransactedOperation, checked: Checked) -> None:
        self._machine.enlisted(operation, checked.found, checked.size_bytes, checked.message_count)

    def _told(self, error: Exception) -> ServiceBusError:
        if isinstance(error, ServiceBusError):
            return error
        self._client.log.failed(error)
        return InternalError("The operation failed inside the bridge.")

    def _unpin(self, operation: TransactedOperation) -> None:
        if isinstance(operation.found, PinnedSession):
            self._verbs.release_sessions((operation.found,))
        if isinstance(operation.found, PinnedSettlements):
            self._verbs.release(operation.found.pins)
            self._abandon_forgotten((operation,))

    def _abandon_forgotten(self, operations: Iterable[TransactedOperation]) -> None:
        """Abandon messages that were not settled after all, and of which the client thinks so.

        Nobody else would end their locks, and their end counts as a delivery, too.
        """
        for operation in operations:
            found = operation.found
            if isinstance(found, PinnedSettlements) and found.is_forgotten:
                for pin in found.pins:
                    abandon_forgotten(self._client, pin.path, pin.lock_token)

    def _end(self, effect: EndCoordinator) -> None:
        coordinator: Any = effect.coordinator
        coordinator.end(effect.error)

    # -- commits

    async def _commit(self, effect: AskForCommit) -> None:
        end = CommitEnd.ACCEPTED
        error: ServiceBusError | None = None
        work = _work_of(effect)
        try:
            await self._verbs.commit(work)
        except TransactionRolledBack as refused:
            end, error = CommitEnd.REFUSED, refused
        except TransactionInDoubt as doubt:
            end, error = CommitEnd.IN_DOUBT, doubt
        except Exception as fault:
            end, error = CommitEnd.IN_DOUBT, self._told(fault)
        if end is CommitEnd.REFUSED:
            self._abandon_forgotten(effect.operations)
        self._machine.commit_ended(effect.txn_id, end, error)
        self._carry_out()

    # -- time

    def _set_timer(self) -> None:
        """Expire transactions in time: a later transaction ends later, so one timer will do."""
        if self._timer is None and (due_ms := self._machine.due_ms()) is not None:
            self._timer = self._loop.call_at(due_ms / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._machine.expire(self._now_ms())
        self._carry_out()


def _is_of_entity(owner: object) -> bool:
    """Whether a link's owner is that of a link of an entity, or of its `$management`."""
    return isinstance(owner, EntityLink) or (
        isinstance(owner, ReplyLink) and owner.node.endswith("/$management")
    )


def abandon_forgotten(client: Client, path: EntityPath, lock_token: UUID) -> None:
    """Abandon a message that a client has settled in a transaction which was rolled back."""
    client.namespace.begin_settling(path, lock_token, Abandon(), lambda error: None)


def _work_of(effect: AskForCommit) -> TransactionWork:
    """Return what a commit is to carry out."""
    found = [each.found for each in effect.operations]
    settlements = [each.settlements for each in found if isinstance(each, PinnedSettlements)]
    cancels = [each.found for each in effect.of(TransactedVerb.CANCEL)]
    return TransactionWork(
        identity=effect.txn_id,
        pinned=EntityPath(effect.entity),
        sends=[each for each in found if isinstance(each, PreparedSend)],
        settlements=[each for several in settlements for each in several],
        cancels=[number for numbers in cancels for number in numbers],
        states=[each for each in found if isinstance(each, PinnedSession)],
        schedules=[each for each in found if isinstance(each, PreparedSchedule)],
    )
