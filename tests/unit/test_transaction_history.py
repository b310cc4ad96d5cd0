"""The checker of transactions finds what is planted, and nothing in a history that holds."""

from __future__ import annotations

import pytest

from tests.crash.transaction_events import (
    CommitAsked,
    FoundAtEnd,
    SentIn,
    Stored,
    TakenIn,
    TransactionEnded,
    TransactionEvent,
    from_line,
    to_line,
)
from tests.crash.transaction_history import check_transactions, in_doubt

OUTCOMES = {
    "complete": [],
    "dead-letter": [FoundAtEnd("order", "here", "dead")],
    "defer": [FoundAtEnd("order", "here", "deferred")],
    "abandon": [FoundAtEnd("order", "here", "active")],
}

LEFT = FoundAtEnd("order", "here", "active")
SENDS = [FoundAtEnd("a", "here", "active"), FoundAtEnd("b", "there", "active")]


def begun(outcome: str = "complete", name: str = "t1", at_ms: int = 10) -> list[TransactionEvent]:
    """A transaction that takes the order and sends two messages."""
    return [
        Stored("order", "here"),
        TakenIn(name, "order", "here", outcome, at_ms),
        SentIn(name, "a", "here"),
        SentIn(name, "b", "there"),
    ]


def ended(*, is_committed: bool, name: str = "t1", at_ms: int = 20) -> list[TransactionEvent]:
    """Its end, answered."""
    return [CommitAsked(name), TransactionEnded(name, is_committed, "told", at_ms)]


COMMITTED = begun() + ended(is_committed=True)
ROLLED_BACK = begun() + ended(is_committed=False)
DOUBTED = [*begun(), CommitAsked("t1")]


def kinds(events: list[TransactionEvent]) -> set[str]:
    """Return what is wrong."""
    return {fault.kind for fault in check_transactions(events)}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_all_of_a_committed_one(outcome: str) -> None:
    """Its sends are there, and the message is where its outcome has brought it."""
    events = begun(outcome) + ended(is_committed=True)
    assert check_transactions([*events, *SENDS, *OUTCOMES[outcome]]) == []


@pytest.mark.parametrize("events", [ROLLED_BACK, begun(), DOUBTED])
def test_nothing_of_one_that_has_not_happened(events: list[TransactionEvent]) -> None:
    """Rolled back, not asked for, or in doubt."""
    assert check_transactions([*events, LEFT]) == []


def test_all_of_one_in_doubt() -> None:
    """It may have happened."""
    assert in_doubt(DOUBTED) == ["t1"]
    assert in_doubt(COMMITTED + ROLLED_BACK) == []
    assert check_transactions([*DOUBTED, *SENDS]) == []


@pytest.mark.parametrize(
    ("events", "found"),
    [
        (DOUBTED, [*SENDS, LEFT]),
        (DOUBTED, [SENDS[0]]),
        (DOUBTED, [SENDS[1], LEFT]),
        (COMMITTED, [SENDS[0]]),
        (COMMITTED, [*SENDS, LEFT]),
        ([*begun("dead-letter"), CommitAsked("t1")], [*SENDS, LEFT]),
    ],
)
def test_a_half_is_found(events: list[TransactionEvent], found: list[FoundAtEnd]) -> None:
    """One send without the other, or sends without the outcome."""
    assert kinds([*events, *found]) == {"half"}


@pytest.mark.parametrize(
    ("events", "found"),
    [
        (COMMITTED, []),
        (ROLLED_BACK, []),
        (begun(), []),
        (DOUBTED, []),
        (begun("dead-letter") + ended(is_committed=True), SENDS),
        (begun("defer") + ended(is_committed=True), SENDS),
        ([Stored("order", "here")], []),
    ],
)
def test_a_loss_is_found(events: list[TransactionEvent], found: list[FoundAtEnd]) -> None:
    """Of what was sent, of what was not settled, and of what belongs to another place."""
    assert kinds([*events, *found]) == {"lost"}


@pytest.mark.parametrize(
    "again",
    [SENDS[0], FoundAtEnd("a", "here", "dead"), FoundAtEnd("a", "there", "active")],
)
def test_a_double_is_found(again: FoundAtEnd) -> None:
    """In the same place, or in another one."""
    assert kinds([*COMMITTED, *SENDS, again]) == {"doubled"}


@pytest.mark.parametrize("events", [ROLLED_BACK, begun()])
def test_what_was_not_rolled_back_is_found(events: list[TransactionEvent]) -> None:
    """Sends that must not be there; and an outcome that must not have happened."""
    assert kinds([*events, LEFT, SENDS[0]]) == {"not rolled back"}
    assert kinds([*events, FoundAtEnd("order", "here", "dead")]) == {"misplaced"}


def test_two_that_have_settled_one_message_are_found() -> None:
    """Each of them has happened."""
    second = [
        TakenIn("t2", "order", "here", "complete", 15),
        SentIn("t2", "c", "here"),
        *ended(is_committed=True, name="t2"),
        FoundAtEnd("c", "here", "active"),
    ]
    assert kinds([*COMMITTED, *SENDS, *second]) == {"settled twice"}


def test_a_delivery_after_the_commit_is_found() -> None:
    """Not before its answer: a kill may have given the message to another one meanwhile."""
    for at_ms, wrong in ((19, set()), (21, {"after commit"})):
        again = TakenIn("t2", "order", "here", "complete", at_ms)
        assert kinds([*COMMITTED, *SENDS, again]) == wrong


def test_what_nobody_has_sent_or_where_is_found() -> None:
    """A message of no transaction; one of another place."""
    assert kinds([FoundAtEnd("x", "here", "active")]) == {"unasked"}
    assert kinds([*COMMITTED, SENDS[0], FoundAtEnd("b", "here", "active")]) == {"misplaced"}


def test_a_line_is_read_as_it_was_written() -> None:
    """Of each kind."""
    for event in [*COMMITTED, *SENDS]:
        assert from_line(to_line(event)) == event
