"""Links to the coordinator of transactions (part 4, section 4.2), which declares none.

Some clients attach one before all their other links because they might use transactions: .NET and
Java with `EnableCrossEntityTransactions`. So the link is accepted, and their plain work goes on; a
transaction is refused when it is declared.
"""

from __future__ import annotations

from typing import Final

from bridge.gateway.client import texts
from bridge.gateway.client.client import Client
from bridge.machine.amqp10.events import MessageArrived
from bridge.machine.amqp10.faults import make_error
from bridge.machine.amqp10.link import IncomingLink
from bridge.model.errors import NotImplementedHere
from bridge.wire.amqp10.performatives import Rejected

CREDIT: Final = 100
"""Requests of a client under way on one link; each is answered at once."""

REQUEST_BYTES_MAX: Final = 4_096
"""Maximum size of a request: a declare or a discharge has a transaction's id at most."""


class CoordinatorLink:
    """A link on which a client declares and discharges transactions."""

    def __init__(self, client: Client, link: IncomingLink) -> None:
        self.link = link
        self._client = client
        link.owner = self
        link.accept(credit=CREDIT, message_bytes_max=REQUEST_BYTES_MAX)

    def on_message(self, event: MessageArrived) -> None:
        """Refuse what is asked: there are no transactions."""
        self._client.log.info("transaction.refused")
        if not event.is_settled:
            error = NotImplementedHere(texts.TRANSACTIONS_NOT_HERE)
            outcome = Rejected(make_error(*self._client.describe(error, "")))
            self.link.settle(event.delivery_id, outcome)
        self.top_up()

    def top_up(self) -> None:
        """Grant credit again when much of it is used."""
        self.link.renew(0)
        self._client.flush_soon()

    def on_detached(self) -> None:
        """Do nothing when the link is gone: it holds nothing."""
