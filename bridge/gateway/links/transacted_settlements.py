"""Settlements by dispositions that a client makes part of a transaction."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bridge.engine.api import Disposition
from bridge.engine.transaction_verbs import PinnedLock, TransactionVerbs, TransactionWork
from bridge.gateway.client.connection_transactions import (
    Checked,
    PinnedSettlements,
    abandon_forgotten,
)
from bridge.gateway.links.outcomes import disposition_of
from bridge.machine.amqp10.events import OutcomeArrived
from bridge.machine.amqp10.link import OutgoingDelivery
from bridge.machine.transactions import refusals
from bridge.machine.transactions.operations import TransactedVerb
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire.amqp10.performatives import Accepted, Declared, TransactionalState

if TYPE_CHECKING:
    from bridge.gateway.links.receiving import ReceivingLink


def begin_settlements(
    link: ReceivingLink, event: OutcomeArrived, state: TransactionalState
) -> None:
    """Make the settlement of each delivery part of the transaction, or refuse it."""
    transactions = link.client.transactions
    for delivery in event.deliveries:
        asker = TransactedSettlement(link, event, delivery, state)
        if transactions is None:
            asker.refuse(None, refusals.not_declared())
        else:
            verb = TransactedVerb.SETTLE
            transactions.operate(
                link.link, state.txn_id, verb, link.path, asker, asker.check, asker.outcome
            )


class TransactedSettlement:
    """The settlement of one delivery, part of a transaction.

    Attributes:
        outcome: what the client is answered with; `None` if it has asked for none that there is.
    """

    def __init__(
        self,
        link: ReceivingLink,
        event: OutcomeArrived,
        delivery: OutgoingDelivery,
        state: TransactionalState,
    ) -> None:
        self._link = link
        self._is_settled = event.is_settled
        self._delivery = delivery
        self._token = UUID(bytes_le=delivery.tag)
        self._disposition: Disposition | None = None
        self._refusal: ServiceBusError | None = None
        self.outcome: Any = None
        try:
            self._disposition, self.outcome = disposition_of(state.outcome)
        except ServiceBusError as error:
            self._refusal = error

    def check(
        self, verbs: TransactionVerbs, pinned: EntityPath
    ) -> Checked | Coroutine[Any, Any, Checked]:
        """Pin the lock; another bridge is asked to pin its own."""
        if self._disposition is None:
            assert self._refusal is not None
            raise self._refusal
        pin = verbs.pin_here(self._link.path, self._token)
        if pin is None:
            return self._check_elsewhere(verbs, pinned, self._disposition)
        return self._checked(verbs, pinned, pin, self._disposition)

    async def _check_elsewhere(
        self, verbs: TransactionVerbs, pinned: EntityPath, disposition: Disposition
    ) -> Checked:
        pin = await verbs.pin(self._link.path, self._token)
        return self._checked(verbs, pinned, pin, disposition)

    def _checked(
        self,
        verbs: TransactionVerbs,
        pinned: EntityPath,
        pin: PinnedLock,
        disposition: Disposition,
    ) -> Checked:
        return pinned_settlements(verbs, pinned, [pin], disposition, is_forgotten=self._is_settled)

    def answer(self, state: TransactionalState | Declared | Accepted) -> None:
        """Tell the client that the settlement is part of the transaction."""
        self._done(state)

    def refuse(self, txn_id: bytes | None, error: ServiceBusError) -> None:
        """Tell the client why it is not."""
        if self._is_settled:
            abandon_forgotten(self._link.client, self._link.path, self._token)
        outcome: Any = self._link.rejected(error)
        self._done(outcome if txn_id is None else TransactionalState(txn_id, outcome))

    def _done(self, state: Any) -> None:
        if not self._is_settled:
            self._link.link.session.settle_outgoing(self._delivery, state)
            self._link.client.flush_soon()


def pinned_settlements(
    verbs: TransactionVerbs,
    pinned: EntityPath,
    pins: list[PinnedLock],
    disposition: Disposition,
    *,
    is_forgotten: bool = False,
) -> Checked:
    """Return what the check of a settlement has found: its pins, and its size in the commit."""
    settlements = [(pin, disposition) for pin in pins]
    work = TransactionWork(identity=bytes(16), pinned=pinned, settlements=settlements)
    return Checked(PinnedSettlements(settlements, is_forgotten), verbs.size_bytes(work))
