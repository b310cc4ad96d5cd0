"""Ranges hold what a set of numbers would hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.ranges import Ranges, ranges_of

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)))


@given(PAIRS, st.integers(0, 70), st.integers(0, 70))
def test_ranges_are_the_set_of_their_numbers(added: list[tuple[int, int]], a: int, b: int) -> None:
    """After every addition: members, counts, the next number that is free."""
    ranges, numbers = Ranges(), set[int]()
    for first, size in added:
        ranges.add(first, first + size)
        numbers |= set(range(first, first + size + 1))
        assert list(ranges) == ranges_of(numbers)
    assert all((number in ranges) == (number in numbers) for number in range(80))
    assert ranges.outside(range(80)) == [number for number in range(80) if number not in numbers]
    low, high = min(a, b), max(a, b)
    assert ranges.count(low, high) == len(numbers & set(range(low, high + 1)))
    assert ranges.next_free(a) == next(n for n in range(a, 90) if n not in numbers)


def test_what_comes_in_order_is_one_range() -> None:
    """A million settled messages cost no more than one."""
    ranges = Ranges()
    for number in range(10_000):
        ranges.add(number, number)
    assert len(ranges) == 1
