"""Operations in a transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from bridge.wire.amqp10.performatives import Accepted, Outcome

if TYPE_CHECKING:
    from bridge.machine.transactions.transaction import Transaction


class TransactedVerb(Enum):
    """What an operation does when its transaction is committed.

    Renewing a lock is done at once: a longer lock cannot be taken back, and does no harm.
    """

    SEND = "send"
    SETTLE = "settle"
    SCHEDULE = "schedule"
    CANCEL = "cancel a scheduled message"
    SET_STATE = "set a session's state"
    RENEW = "renew a lock"


PINNING: Final = frozenset(
    (
        TransactedVerb.SETTLE,
        TransactedVerb.SCHEDULE,
        TransactedVerb.CANCEL,
        TransactedVerb.SET_STATE,
    )
)
"""Operations for which something is kept as it is until the end of the transaction: a lock, a
scheduled message, a session's lock and state, the numbers that were given."""


@dataclass(slots=True, eq=False)
class TransactedOperation:
    """An operation that a client asks for in a transaction.

    Attributes:
        entity: the key of the queue or topic; a subscription's is its topic's, a dead-letter
            queue's that of its entity.
        asker: who is answered, a delivery or a request; opaque here.
        content: what is to be carried out; opaque here.
        outcome: the outcome that the client is told when the operation has become part of the
            transaction.
        message_count: the messages that are sent or scheduled, as far as they are counted.
        size_bytes: the size in the commit, as far as it is known.
        found: what was found out when it became part of the transaction, such as the number of the
            locked message, or the numbers of scheduled ones; opaque here.
        transaction: the transaction of which it is a part.
    """

    verb: TransactedVerb
    entity: str
    asker: Any
    content: Any
    outcome: Outcome = field(default_factory=Accepted)
    message_count: int = 0
    size_bytes: int = 0
    found: Any = None
    transaction: Transaction | None = None

    def end_check(self) -> Transaction:
        """Note that the check of the operation has ended; return its transaction."""
        assert self.transaction is not None
        self.transaction.pending.remove(self)
        return self.transaction
