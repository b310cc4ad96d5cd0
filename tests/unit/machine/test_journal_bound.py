"""The bound of a journal follows the backlog, within limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox.journal_bound import JournalBound, needed_entries

BASE = 1_000
MOST = 10_000


def test_it_is_raised_before_what_is_unsettled_falls_out() -> None:
    """With half as much again for what comes until the next look, and never above the most."""
    bound = JournalBound(BASE, MOST, BASE)
    assert not bound.look(600, 0)
    assert bound.look(700, 1)
    assert bound.bytes == 2 * BASE
    assert bound.look(5_000, 2)
    assert bound.bytes == 8 * BASE
    assert bound.look(50_000, 3)
    assert bound.bytes == MOST
    assert not bound.is_enough(50_000)


def test_it_is_lowered_when_half_has_been_enough_for_a_while() -> None:
    """Halved, and again after the same time; a backlog in between begins that time anew."""
    bound = JournalBound(4 * BASE, MOST, BASE, lower_after_s=60)
    assert not bound.look(100, 0)
    assert not bound.look(2_000, 30)
    assert not bound.look(100, 59)
    assert not bound.look(100, 118)
    assert bound.look(100, 119)
    assert bound.bytes == 2 * BASE
    assert bound.look(0, 179)
    assert (bound.bytes, bound.look(0, 1_000)) == (BASE, False)


def test_it_stays_as_it_is_where_the_entity_is_small() -> None:
    """Most entities are no larger than the usual bound."""
    bound = JournalBound(BASE, BASE // 2, BASE)
    assert not bound.look(10 * BASE, 0)
    assert bound.bytes == BASE


def test_what_was_raised_comes_down_when_the_entity_is_made_smaller() -> None:
    """The journal's limit falls below the entity's new size at once."""
    bound = JournalBound(8 * BASE, 3 * BASE, BASE, lower_after_s=0)
    bound.look(0, 0)
    assert bound.look(0, 1)
    assert bound.bytes <= 3 * BASE


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 300)), max_size=30))
def test_it_is_within_its_limits_and_holds_what_it_can(looks: list[tuple[int, int]]) -> None:
    """After every look."""
    bound, now_s = JournalBound(BASE, MOST, BASE, lower_after_s=100), 0
    for needed, passed_s in looks:
        now_s += passed_s
        bound.look(needed, now_s)
        assert BASE <= bound.bytes <= MOST
        assert bound.is_enough(needed) or bound.bytes == MOST


def test_a_subscription_that_takes_little_needs_a_longer_journal() -> None:
    """The one that is furthest behind counts."""
    numbers = {b"all": 1_000, b"few": 100, b"new": 0}
    assert needed_entries(numbers, 1_000, {b"all": 300, b"few": 20, b"new": 0}) == 300
    assert needed_entries(numbers, 1_000, {b"all": 300, b"few": 60}) == 600
    assert needed_entries(numbers, 1_000, {b"few": 500}) == 1_000
    assert needed_entries({}, 0, {b"all": 1}) == 0
