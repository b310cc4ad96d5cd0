"""Links to the coordinator of transactions (part 4, section 4.2).

Some clients attach one before all their other links because they might use transactions: .NET and
Java with `EnableCrossEntityTransactions`.
"""

from __future__ import annotations

from typing import Any, Final

from bridge.gateway.client.client import Client
from bridge.gateway.client.connection_transactions import ConnectionTransactions
from bridge.machine.amqp10.events import MessageArrived
from bridge.machine.amqp10.faults import DECODE_ERROR, make_error
from bridge.machine.amqp10.link import IncomingLink
from bridge.model.errors import ServiceBusError
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.performatives import (
    Accepted,
    Declare,
    Declared,
    Rejected,
    TransactionalState,
)
from bridge.wire.amqp10.transactions import decode_request

CREDIT: Final = 100
"""Requests of a client under way on one link."""

REQUEST_BYTES_MAX: Final = 4_096
"""Maximum size of a request: a declare or a discharge has a transaction's id at most."""


class CoordinatorLink:
    """A link on which a client declares and discharges transactions."""

    def __init__(self, client: Client, link: IncomingLink) -> None:
        self.link = link
        self.client = client
        self._under_way = 0
        if client.transactions is None:
            client.transactions = ConnectionTransactions(client, client.namespace.transactions)
        self._transactions = client.transactions
        self._transactions.coordinator_attached(link)
        link.owner = self
        link.accept(credit=CREDIT, message_bytes_max=REQUEST_BYTES_MAX)

    def on_message(self, event: MessageArrived) -> None:
        """Declare a transaction, or discharge one; a settled declare is ignored."""
        self._under_way += 1
        asker = CoordinatorRequest(self, event)
        try:
            request = decode_request(event.payload)
        except DecodeError as error:
            self.done(event, Rejected(make_error(DECODE_ERROR, str(error))))
            return
        if not isinstance(request, Declare):
            self._transactions.discharge(self, asker, request.txn_id, is_failed=request.fail)
        elif event.is_settled:
            self.done(event, None)  # nobody would know its id
        else:
            self._transactions.declare(self, asker)

    def done(self, event: MessageArrived, state: Any) -> None:
        """Write the outcome of a request."""
        self._under_way -= 1
        if not event.is_settled and self.link.is_open:
            self.link.settle(event.delivery_id, state)
        self.top_up()

    def end(self, error: ServiceBusError) -> None:
        """End the link: nobody knows whether a commit was carried out."""
        self.client.log.info("transaction.unknown", reason=str(error))
        self.link.detach(*self.client.describe(error, ""))
        self.client.links.forget(self)
        self.client.flush_soon()

    def top_up(self) -> None:
        """Grant credit again when much of it is used."""
        self.link.renew(self._under_way)
        self.client.flush_soon()

    def on_detached(self) -> None:
        """Roll back what is not discharged: the link is gone."""
        self._transactions.coordinator_closed(self)


class CoordinatorRequest:
    """A declare or a discharge that waits for its answer."""

    def __init__(self, coordinator: CoordinatorLink, event: MessageArrived) -> None:
        self._coordinator = coordinator
        self._event = event

    def answer(self, state: TransactionalState | Declared | Accepted) -> None:
        """Tell the client the id, or that the transaction is discharged."""
        self._coordinator.done(self._event, state)

    def refuse(self, txn_id: bytes | None, error: ServiceBusError) -> None:
        """Tell the client why there is no transaction, or why it was rolled back."""
        client = self._coordinator.client
        client.log.info("transaction.refused", reason=str(error))
        rejected = Rejected(make_error(*client.describe(error, "")))
        self._coordinator.done(self._event, rejected)
