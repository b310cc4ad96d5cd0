"""The account of a place finds every kind of fault that is planted in it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.accounting.account import Account, Left, Line, faults_of

LOCK_MS = 10_000
ACTIVE = Left("a", "active", 1)


def got(at: int, *, count: int = 0, identity: str = "a", **fields: Any) -> Line:
    """A delivery."""
    usual = {"number": 1, "session": "", "until": at + LOCK_MS}
    return {"what": "got", "id": identity, "at": at, "count": count, **usual, **fields}


def asked(at: int, how: str, what: str = "settling") -> Line:
    """A settlement that was asked for, or answered."""
    return {"what": what, "id": "a", "number": 1, "session": "", "at": at, "how": how}


def settled(at: int, how: str) -> list[Line]:
    """A settlement that was asked for and answered at once."""
    return [asked(at, how), asked(at, how, "settled")]


def account(*lines: Line, left: tuple[Left, ...] = (), **fields: Any) -> Account:
    """The account of a place to which `a` was sent."""
    return Account("q", 2, **{"sent": ["a"], "lines": lines, "left": left, **fields})


FAULTLESS = {
    "completed": account(got(1), *settled(2, "complete")),
    "completed after a failure": account(
        got(1), *settled(2, "abandon"), got(3, count=1), *settled(4, "complete")
    ),
    "left": account(left=(ACTIVE,)),
    "asked, and never answered": account(got(1), asked(2, "complete")),
    "asked, never answered, and left": account(got(1), asked(2, "complete"), left=(ACTIVE,)),
    "deferred": account(got(1), *settled(2, "defer"), left=(Left("a", "deferred", 1),)),
    "deferred, taken by number, completed": account(
        got(1), *settled(2, "defer"), got(2), *settled(3, "complete")
    ),
    "dead-lettered for its deliveries": account(
        got(1),
        *settled(2, "abandon"),
        got(3, count=1),
        *settled(4, "throw"),
        left=(Left("a", "dead", 1, "MaxDeliveryCountExceeded"),),
    ),
    "refused after its lock's end": account(
        got(1), asked(LOCK_MS + 5, "complete"), asked(LOCK_MS + 6, "complete", "refused"),
        left=(ACTIVE,),
    ),
    "cut off as it was completed": account(
        got(1), asked(2, "complete"), asked(3, "complete", "refused"), has_cuts=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTLESS)
def test_what_holds_has_no_fault(name: str) -> None:
    """Any history of ordinary use is without a fault."""
    assert faults_of(FAULTLESS[name]) == []


FAULTY = {
    "lost": account(got(1), *settled(2, "abandon")),
    "lost, never delivered": account(),
    "doubled": account(left=(ACTIVE, ACTIVE)),
    "unasked": account(got(1), *settled(2, "complete"), sent=[]),
    "came back, to a client": account(got(1), *settled(2, "complete"), got(3, count=1)),
    "came back, and left": account(got(1), *settled(2, "complete"), left=(ACTIVE,)),
    "not as asked: dead-lettered": account(got(1), *settled(2, "dead"), left=(ACTIVE,)),
    "not as asked: deferred by nobody": account(got(1), left=(Left("a", "deferred", 1),)),
    "not as asked: deferred, but active": account(got(1), *settled(2, "defer"), left=(ACTIVE,)),
    "not as asked: dead-lettered by nobody": account(got(1), left=(Left("a", "dead", 1),)),
    "count: falls": account(got(1, count=1), got(LOCK_MS * 2), left=(ACTIVE,)),
    "count: does not rise": account(got(1), *settled(2, "abandon"), got(3), left=(ACTIVE,)),
    "count: rises by itself": account(got(1), got(3, count=1), left=(ACTIVE,)),
    "unseen": account(got(1), left=(Left("a", "dead", 1, "MaxDeliveryCountExceeded"),)),
    "innocent": account(
        got(1), asked(2, "complete"), asked(3, "complete", "refused"), left=(ACTIVE,)
    ),
    "number twice: one for two": account(
        got(1), got(1, identity="b"), sent=["a", "b"], left=(ACTIVE, Left("b", "active", 1))
    ),
    "number twice: two for one": account(got(1), left=(Left("a", "active", 2),)),
    "out of order": account(
        got(2, session="s"), got(1, session="s", number=2, identity="b"),
        sent=["a", "b"], left=(ACTIVE, Left("b", "active", 2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_is_found(name: str) -> None:
    """By its kind."""
    kind = name.partition(":")[0].partition(",")[0]
    faults = faults_of(FAULTY[name])
    assert any(kind in fault for fault in faults), faults
