"""Messages that a client sends in a transaction."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from bridge.background.slices import in_slices
from bridge.engine.transaction_verbs import TransactionVerbs
from bridge.gateway.client.connection_transactions import Checked
from bridge.machine.amqp10.events import MessageArrived
from bridge.machine.transactions import refusals
from bridge.machine.transactions.operations import TransactedVerb
from bridge.message.envelopes import Outgoing
from bridge.model.errors import InvalidField, ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.performatives import Accepted, Declared, TransactionalState
from bridge.wire.mapping.fields import MappingError

if TYPE_CHECKING:
    from bridge.gateway.links.sending import SendingLink


def begin_send(link: SendingLink, event: MessageArrived, state: TransactionalState) -> None:
    """Make a message or a batch part of the transaction that its state names, or refuse it."""
    asker = TransactedSend(link, event)
    transactions = link.client.transactions
    if transactions is None:
        asker.refuse(None, refusals.not_declared())
    else:
        verb = TransactedVerb.SEND
        transactions.operate(link.link, state.txn_id, verb, link.path, asker, asker.check)


class TransactedSend:
    """A message or a batch of a sender's link, part of a transaction."""

    def __init__(self, link: SendingLink, event: MessageArrived) -> None:
        self._link = link
        self._event = event

    def check(
        self, verbs: TransactionVerbs, pinned: EntityPath
    ) -> Checked | Coroutine[Any, Any, Checked]:
        """Check the messages; those of a large batch are read in slices."""
        self._link.check_size(self._event)
        if self._link.is_large(self._event):
            self._link.client.unconfirmed.count(len(self._event.payload))
            return self._check_in_slices(verbs, pinned)
        try:
            batch = list(self._link.read(self._event))
        except (MappingError, DecodeError) as error:
            raise unreadable(error) from error
        return self._prepared(verbs, pinned, batch)

    async def _check_in_slices(self, verbs: TransactionVerbs, pinned: EntityPath) -> Checked:
        try:
            batch = await in_slices(self._link.read(self._event))
        except (MappingError, DecodeError) as error:
            raise unreadable(error) from error
        finally:
            self._link.client.unconfirmed.count(-len(self._event.payload))
        return self._prepared(verbs, pinned, batch)

    def _prepared(
        self, verbs: TransactionVerbs, pinned: EntityPath, batch: Sequence[Outgoing]
    ) -> Checked:
        prepared = verbs.prepare(pinned, self._link.path, batch)
        return Checked(prepared, prepared.size_bytes, len(batch))

    def answer(self, state: TransactionalState | Declared | Accepted) -> None:
        """Tell the client that the messages are part of the transaction."""
        self._link.done(self._event, state)

    def refuse(self, txn_id: bytes | None, error: ServiceBusError) -> None:
        """Tell the client why they are not."""
        outcome: Any = self._link.rejected(error)
        if txn_id is not None:
            outcome = TransactionalState(txn_id, outcome)
        self._link.done(self._event, outcome)


def unreadable(error: Exception) -> ServiceBusError:
    """Return the refusal of what is no message, or no batch."""
    return InvalidField(f"The message cannot be read: {error}")
