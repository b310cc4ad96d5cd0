"""Rounds of a measurement: their messages, their ends, and the figures of all of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.operations.measurement import MessageAccount, RateFigure, RoundLimit


@given(st.integers(min_value=0, max_value=20), st.data())
def test_an_account_finds_each_message_that_is_missing_doubled_or_strange(
    count: int, data: st.DataObject
) -> None:
    """Whatever came, in any order."""
    account = MessageAccount("r")
    ids = [account.new_id() for _ in range(count)]
    assert len(set(ids)) == count
    sent = [each for each in ids if data.draw(st.booleans())]
    for each in sent:
        account.note_sent(each)
    strange = ["other-1", "r-99", "r-x", "r--1", "r-²", f"r-{'9' * 5_000}", "", 5, None, b"r-0"]
    came = data.draw(st.lists(st.sampled_from([*ids, *strange]), max_size=40))
    for each in came:
        account.note_came(each)

    known = Counter(each for each in came if each in sent)
    missing = len(sent) - len(known)
    twice = known.total() - len(known)
    assert (account.sent, account.missing) == (len(sent), missing)
    faults = account.faults()
    assert any("missing" in each for each in faults) == bool(missing)
    assert any("came twice" in each for each in faults) == bool(twice)
    assert any("not sent by this round" in each for each in faults) == (known.total() < len(came))
    if missing:
        assert faults[0] == f"missing: {missing} of {len(sent)} that were sent"


def test_a_message_is_sent_once() -> None:
    """A mistake of the caller's is no account."""
    account = MessageAccount("r")
    message_id = account.new_id()
    account.note_sent(message_id)
    for each in (message_id, "r-1", "q-0"):
        with pytest.raises(ValueError, match="is no message that is to be sent"):
            account.note_sent(each)


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_round_ends_after_its_messages() -> None:
    """What was taken and not done is given back."""
    clock = Clock()
    limit = RoundLimit(10, 5.0, clock)
    limit.begin()
    assert [limit.take(4), limit.take(4)] == [4, 4]
    limit.give_back(3)
    limit.note_done(5)
    assert (limit.take(9), limit.is_over, limit.take()) == (5, True, 0)
    limit.note_done(5)
    clock.now_s += 4
    assert limit.rate() == 2.5


def test_a_round_ends_after_its_time() -> None:
    """Its rate is of what was done until then, however many were asked for."""
    clock = Clock()
    limit = RoundLimit(1_000, 5.0, clock)
    clock.now_s += 60  # before it begins nothing is measured
    limit.begin()
    assert limit.rate() == 0
    assert limit.take() == 1
    limit.note_done()
    clock.now_s += 5
    assert (limit.is_over, limit.take()) == (True, 0)
    assert limit.rate() == 0.2


def test_a_figure_is_the_median_of_its_rounds_beside_the_peers() -> None:
    """One slow round changes no median."""
    figure = RateFigure("send", (100.0, 1.0, 110.0), (400.0, 50.0, 50.0))
    assert (figure.median, figure.peer_median, figure.ratio) == (100.0, 50.0, 2.0)
    alone = RateFigure("sessions", (3.0, 5.0))
    assert (alone.median, alone.peer_median, alone.ratio) == (4.0, None, None)
    assert RateFigure("send", (1.0,), (0.0,)).ratio is None
