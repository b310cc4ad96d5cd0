"""Effects of the machine of transactions, to be carried out in order, and how a commit ends."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bridge.machine.transactions.operations import TransactedOperation, TransactedVerb
from bridge.model.errors import ServiceBusError
from bridge.wire.amqp10.performatives import Accepted, Declared, TransactionalState


@dataclass(frozen=True, slots=True)
class Enlist:
    """Check an operation, and pin what it needs: its lock, a scheduled message.

    It is answered with `Transactions.enlisted` or `refused`, at once or later.

    Attributes:
        entity: the key of the pinned queue or topic.
    """

    operation: TransactedOperation
    entity: str


@dataclass(frozen=True, slots=True)
class Unpin:
    """Let go what an operation has pinned, as it was before: it will not be carried out."""

    operation: TransactedOperation


@dataclass(frozen=True, slots=True)
class AskForCommit:
    """Carry out all operations of a transaction, or none: answered with `commit_ended`, once.

    What the operations have pinned is the committer's from now on, however the commit ends.

    Attributes:
        entity: the key of the pinned queue or topic.
        operations: all of them, in the order in which the client asked.
    """

    txn_id: bytes
    entity: str
    operations: tuple[TransactedOperation, ...]

    def of(self, verb: TransactedVerb) -> list[TransactedOperation]:
        """Return the operations of a kind, in order."""
        return [each for each in self.operations if each.verb is verb]

    def sends(self) -> dict[str, list[TransactedOperation]]:
        """Return the sends by the key of their destination, each in order."""
        found: dict[str, list[TransactedOperation]] = {}
        for each in self.of(TransactedVerb.SEND):
            found.setdefault(each.entity, []).append(each)
        return found


class CommitEnd(Enum):
    """What became of a commit."""

    ACCEPTED = "stored: it is carried out"
    REFUSED = "not stored, nor will it be"
    IN_DOUBT = "nobody knows whether it is stored"


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell a client that what it asked for was taken: with the outcome, whatever it asked.

    Java waits for the outcome in the state, and takes a discharge for done that is `accepted`.
    """

    asker: Any
    state: TransactionalState | Declared | Accepted


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell a client that what it asked for was refused.

    Attributes:
        txn_id: the transaction that its operation names: the rejection stands in its state; `None`
            for a declare or a discharge.
    """

    asker: Any
    txn_id: bytes | None
    error: ServiceBusError


@dataclass(frozen=True, slots=True)
class EndCoordinator:
    """Detach a coordinator's link, as nobody knows whether a commit is stored.

    No outcome says so; clients take the end of the link for it.
    """

    coordinator: Hashable
    error: ServiceBusError


TransactionEffect = Enlist | Unpin | AskForCommit | Answer | Refuse | EndCoordinator
