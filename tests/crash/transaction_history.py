"""The judgement over a history of transactions. Pure: the events are all there is.

check_transactions(events) -> what is wrong, nothing when all holds:
    lost            a message that belongs somewhere is nowhere
    doubled         a message is there more than once
    half            some of a transaction has happened, and some has not
    not rolled back of a transaction that was not committed something has happened
    settled twice   two transactions have settled one message for good
    after commit    delivered after the answer to the commit that has settled it for good
    misplaced       a message is where nothing has brought it
    unasked         a message that nobody has sent
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.crash.history import Fault
from tests.crash.transaction_events import (
    CommitAsked,
    FoundAtEnd,
    SentIn,
    Stored,
    TakenIn,
    TransactionEnded,
    TransactionEvent,
)

_STATES = {"complete": "", "dead-letter": "dead", "defer": "deferred", "abandon": "active"}
"""Outcome -> the state that a message has then; none when it is gone."""

Place = tuple[str, str]
"""A place, and a state."""


@dataclass(slots=True)
class _Transaction:
    taken: list[TakenIn] = field(default_factory=list)
    sent: list[SentIn] = field(default_factory=list)
    is_asked: bool = False
    end: TransactionEnded | None = None

    @property
    def may_be(self) -> tuple[bool, ...]:
        """Whether it may have happened: one answer, or both while in doubt."""
        if self.end is not None:
            return (self.end.is_committed,)
        return (True, False) if self.is_asked else (False,)


@dataclass(slots=True)
class _Message:
    origin: str = ""
    sent_to: str = ""
    deliveries: list[TakenIn] = field(default_factory=list)
    found: Counter[Place] = field(default_factory=Counter)

    @property
    def is_seen(self) -> bool:
        return bool(self.deliveries or self.found)


@dataclass(slots=True)
class _Book:
    transactions: dict[str, _Transaction]
    messages: dict[str, _Message]
    has_happened: dict[str, bool] = field(default_factory=dict)


def check_transactions(events: Iterable[TransactionEvent]) -> list[Fault]:
    """Judge a whole history; each transaction has sent at least one message."""
    book = _read(events)
    faults: list[Fault] = []
    for name, transaction in book.transactions.items():
        faults += _check_sends(name, transaction, book)
    for identity, message in book.messages.items():
        faults += _check_message(identity, message, book)
    return faults


def in_doubt(events: Iterable[TransactionEvent]) -> list[str]:
    """Return the transactions whose clients do not know whether they have happened."""
    return [name for name, each in _read(events).transactions.items() if len(each.may_be) > 1]


def _read(events: Iterable[TransactionEvent]) -> _Book:
    transactions: dict[str, _Transaction] = defaultdict(_Transaction)
    messages: dict[str, _Message] = defaultdict(_Message)
    for event in events:
        match event:
            case Stored(identity, place):
                messages[identity].sent_to = place
            case TakenIn():
                transactions[event.transaction].taken.append(event)
                messages[event.id].deliveries.append(event)
            case SentIn():
                transactions[event.transaction].sent.append(event)
                messages[event.id].origin = event.transaction
                messages[event.id].sent_to = event.place
            case CommitAsked(name):
                transactions[name].is_asked = True
            case TransactionEnded():
                transactions[event.transaction].end = event
            case FoundAtEnd():
                messages[event.id].found[event.place, event.state] += 1
    return _Book(dict(transactions), dict(messages))


def _check_sends(name: str, transaction: _Transaction, book: _Book) -> list[Fault]:
    """Learn from what it has sent whether a transaction has happened, and check that."""
    seen = [each.id for each in transaction.sent if book.messages[each.id].is_seen]
    unseen = [each.id for each in transaction.sent if not book.messages[each.id].is_seen]
    has_happened = bool(seen) if len(transaction.may_be) > 1 else transaction.may_be[0]
    book.has_happened[name] = has_happened
    if not has_happened and seen:
        return [Fault("not rolled back", f"{name} has sent {seen}")]
    if has_happened and unseen:
        kind = "half" if seen else "lost"
        return [Fault(kind, f"{name} has sent {seen}, and not {unseen}")]
    return []


def _check_message(identity: str, message: _Message, book: _Book) -> list[Fault]:
    if not message.sent_to:
        return [Fault("unasked", f"{identity} was seen, and nobody has sent it")]
    faults = [
        Fault("misplaced", f"{identity} was delivered at {each.place}, not {message.sent_to}")
        for each in message.deliveries
        if each.place != message.sent_to
    ]
    if message.origin and not (book.has_happened[message.origin] and message.is_seen):
        return faults  # what is wrong with it was told with its transaction
    settled = [
        each
        for each in message.deliveries
        if each.outcome != "abandon" and book.has_happened[each.transaction]
    ]
    if len(settled) > 1:
        by = [each.transaction for each in settled]
        return [*faults, Fault("settled twice", f"{identity} by {by}")]
    for each in settled:
        faults += _check_later(each, message, book)
    state = _STATES[settled[0].outcome] if settled else "active"
    belongs = Counter([(message.sent_to, state)] if state else [])
    return faults + _check_found(identity, message, belongs, settled)


def _check_later(settled: TakenIn, message: _Message, book: _Book) -> list[Fault]:
    end = book.transactions[settled.transaction].end
    return [
        Fault("after commit", f"{settled.id} was in {each.transaction} after {end.transaction}")
        for each in message.deliveries
        if end is not None and each.at_ms > end.at_ms
    ]


def _check_found(
    identity: str, message: _Message, belongs: Counter[Place], settled: list[TakenIn]
) -> list[Fault]:
    if message.found == belongs:
        return []
    text = f"{identity} is {dict(message.found)}, and belongs {dict(belongs)}"
    if settled:
        text += f" by {settled[0].transaction} ({settled[0].outcome})"
    if message.found.total() > 1:
        return [Fault("doubled", text)]
    if message.found[message.sent_to, "active"]:
        return [Fault("half", text)]
    return [Fault("misplaced" if message.found else "lost", text)]
