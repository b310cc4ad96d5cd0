"""Operations for the tests of transactions."""

from __future__ import annotations

from bridge.machine.transactions.operations import TransactedOperation, TransactedVerb
from bridge.model.errors import MessageLockLost, OperationTimeout, ServerBusy
from bridge.wire.amqp10.performatives import Accepted, Outcome

LOST = MessageLockLost("The lock is lost.")
BUSY = ServerBusy("RabbitMQ refuses.")
UNKNOWN = OperationTimeout("Nobody knows.")
SEND, SETTLE, RENEW = TransactedVerb.SEND, TransactedVerb.SETTLE, TransactedVerb.RENEW
ACROSS, PLAIN, OTHER = "across", "plain", "other"
"""A session that began with a coordinator, and two that did not."""


def operation(
    name: str,
    verb: TransactedVerb = SEND,
    entity: str = "q",
    *,
    outcome: Outcome | None = None,
    messages: int = 1,
    size_bytes: int = 10,
) -> TransactedOperation:
    """Return an operation; only what is sent or scheduled has messages."""
    if verb not in (SEND, TransactedVerb.SCHEDULE):
        messages = 0
    answer = outcome or Accepted()
    return TransactedOperation(verb, entity, name, name, answer, messages, size_bytes)
