"""What clients did in transactions, and where each message was found at the end.

Each message has an id of its own in its body. `at_ms` is the time on the one clock of the machine.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stored:
    """A message was accepted outside of any transaction, at a place."""

    id: str
    place: str


@dataclass(frozen=True, slots=True)
class TakenIn:
    """A client got a message, and gave it an outcome in a transaction.

    Attributes:
        outcome: `complete`, `dead-letter`, `defer` or `abandon`.
    """

    transaction: str
    id: str
    place: str
    outcome: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class SentIn:
    """A client has begun to send a message in a transaction."""

    transaction: str
    id: str
    place: str


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """A client is about to ask for a commit; without it a transaction never happens."""

    transaction: str


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The end was answered.

    Attributes:
        why: what the client was told.
    """

    transaction: str
    is_committed: bool
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class FoundAtEnd:
    """A message was at a place when all was over, in a state: `active`, `deferred` or `dead`."""

    id: str
    place: str
    state: str


TransactionEvent = Stored | TakenIn | SentIn | CommitAsked | TransactionEnded | FoundAtEnd

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in TransactionEvent.__args__}


def to_line(event: TransactionEvent) -> str:
    """Return an event as a line of JSON."""
    return json.dumps({"event": type(event).__name__, **asdict(event)})


def from_line(line: str) -> TransactionEvent:
    """Return the event of a line."""
    fields = json.loads(line)
    made: TransactionEvent = _KINDS[fields.pop("event")](**fields)
    return made
