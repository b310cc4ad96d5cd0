"""Requests to `$management` that a client makes part of a transaction.

Settlements, schedules, cancels and states of sessions are; locks are renewed at once. What only
reads is done as outside of one, but for a session's state that the transaction has set. Whatever
else is refused, by its name, and with it the commit: also messages that would be deleted as they
are received.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bridge.background.slices import in_slices
from bridge.engine.api import NamespaceVerbs
from bridge.engine.transaction_verbs import PinnedLock, TransactionVerbs
from bridge.gateway.client import texts
from bridge.gateway.client.connection_transactions import (
    Check,
    Checked,
)
from bridge.gateway.links.transacted_settlements import pinned_settlements
from bridge.gateway.nodes.node_operation import (
    Body,
    Deleting,
    NodeOperation,
    body_disposition,
    is_deletion,
    items_of,
    numbers_of,
    scheduled_in,
    tokens_of,
)
from bridge.gateway.nodes.requests import body_of, refuse, succeeded
from bridge.gateway.nodes.session_operations import named_session, state_in
from bridge.machine.transactions import refusals
from bridge.machine.transactions.operations import TransactedVerb
from bridge.model.errors import NotImplementedHere, ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire.amqp10.performatives import Accepted, Declared, TransactionalState
from bridge.wire.amqp10.types import Array

if TYPE_CHECKING:
    from bridge.gateway.nodes.request_links import LinkRequest, RequestLink

RECEIVE_DEFERRED: Final = "receive-by-sequence-number"

READS: Final = frozenset(
    (
        "peek-message",
        RECEIVE_DEFERRED,
        "get-session-state",
        "get-message-sessions",
        "enumerate-rules",
    )
)
"""Operations that change nothing that a rollback would have to undo; a lock is none of it."""

SESSION_BYTES: Final = 512
"""What a session takes in a commit at most, beside its state."""

NUMBER_BYTES: Final = 16
"""What a number takes in a commit at most."""


def is_read(name: str, request: LinkRequest) -> bool:
    """Whether a request changes nothing that a rollback would have to undo.

    Args:
        name: the operation, without its prefix.
    """
    return name in READS and not (name == RECEIVE_DEFERRED and is_deletion(request.message.value))


def refusal_of_read(link: RequestLink, request: LinkRequest) -> ServiceBusError | None:
    """Return why a request that only reads is not carried out in its transaction."""
    transactions = link.client.transactions
    if transactions is None:
        return refusals.not_declared()
    is_known = request.txn_id is not None and request.txn_id in transactions
    return None if is_known else refusals.not_declared()


def of_transaction(link: RequestLink, request: LinkRequest, read: NodeOperation) -> NodeOperation:
    """Return an operation that reads a session's state, as the request's transaction sees it."""
    verbs, txn_id = link.client.namespace.transactions, request.txn_id
    assert verbs is not None
    assert txn_id is not None

    async def run(
        namespace: NamespaceVerbs, path: EntityPath, body: Body
    ) -> Body | Deleting | None:
        pin = verbs.state_in(txn_id, path, named_session(namespace, path, body))
        if pin is not None:
            return {"session-state": pin.state}
        return await read.run(namespace, path, body)

    return replace(read, run=run)


class TransactedRequest:
    """A request to an entity's `$management`, part of a transaction.

    Args:
        name: the operation's name.
        operation: the operation; `None`: there is none of this name.
    """

    def __init__(
        self,
        link: RequestLink,
        path: EntityPath,
        request: LinkRequest,
        name: str,
        operation: NodeOperation | None,
    ) -> None:
        self._link = link
        self._path = path
        self._request = request
        self._name = name
        self._operation = operation
        self._value: Any = {}

    def begin(self) -> None:
        """Make the request part of the transaction that it names, or refuse it."""
        transactions, txn_id = self._link.client.transactions, self._request.txn_id
        if transactions is None or txn_id is None:
            self.refuse(None, refusals.not_declared())
            return
        verb, check = self._asked()
        transactions.operate(self._link.link, txn_id, verb, self._path, self, check)

    def _asked(self) -> tuple[TransactedVerb, Check]:
        return {
            "com.microsoft:update-disposition": (TransactedVerb.SETTLE, self._settle),
            "com.microsoft:cancel-scheduled-message": (TransactedVerb.CANCEL, self._cancel),
            "com.microsoft:renew-lock": (TransactedVerb.RENEW, self._renew),
            "com.microsoft:renew-session-lock": (TransactedVerb.RENEW, self._renew),
            "com.microsoft:set-session-state": (TransactedVerb.SET_STATE, self._set_state),
            "com.microsoft:schedule-message": (TransactedVerb.SCHEDULE, self._schedule),
            f"com.microsoft:{RECEIVE_DEFERRED}": (TransactedVerb.SETTLE, self._no_deletion),
        }.get(self._name, (TransactedVerb.SET_STATE, self._not_here))

    def _body(self) -> Body:
        assert self._operation is not None
        return body_of(self._link, self._path, self._request, self._operation)

    async def _settle(self, verbs: TransactionVerbs, pinned: EntityPath) -> Checked:
        body = self._body()
        disposition = body_disposition(body)
        pins: list[PinnedLock] = []
        try:
            for token in tokens_of(body):
                pins.append(await verbs.pin(self._path, token))
            return pinned_settlements(verbs, pinned, pins, disposition)
        except BaseException:
            verbs.release(pins)
            raise

    def _cancel(self, verbs: TransactionVerbs, pinned: EntityPath) -> Checked:
        numbers = numbers_of(self._body())
        return Checked(numbers, NUMBER_BYTES * len(numbers))

    async def _set_state(self, verbs: TransactionVerbs, pinned: EntityPath) -> Checked:
        assert self._request.txn_id is not None
        session_id, state = state_in(self._link.client.namespace, self._path, self._body())
        pin = await verbs.set_state(self._request.txn_id, self._path, session_id, state)
        return Checked(pin, SESSION_BYTES + len(state or b""))

    async def _schedule(self, verbs: TransactionVerbs, pinned: EntityPath) -> Checked:
        batch = await in_slices(scheduled_in(items_of(self._body(), "messages")))
        found = await verbs.reserve(pinned, batch)
        self._value = {"sequence-numbers": Array("long", tuple(found.numbers))}
        return Checked(found, found.size_bytes, len(batch))

    async def _renew(self, verbs: TransactionVerbs, pinned: EntityPath) -> Checked:
        body, operation = self._body(), self._operation
        assert operation is not None
        self._value = await operation.run(self._link.client.namespace, self._path, body)
        return Checked()

    def _not_here(
        self, verbs: TransactionVerbs, pinned: EntityPath
    ) -> Checked | Coroutine[Any, Any, Checked]:
        raise NotImplementedHere(texts.NOT_IN_TRANSACTIONS.format(name=self._name))

    def _no_deletion(self, verbs: TransactionVerbs, pinned: EntityPath) -> Checked:
        raise NotImplementedHere(texts.DELETION_NOT_IN_TRANSACTIONS.format(name=self._name))

    def answer(self, state: TransactionalState | Declared | Accepted) -> None:
        """Tell the client that the request is part of the transaction."""
        self._link.reply(self._request, succeeded(self._request), self._value)
        self._link.client.flush_soon()

    def refuse(self, txn_id: bytes | None, error: ServiceBusError) -> None:
        """Tell the client why it is not."""
        refuse(self._link, self._path, self._request, error)
