"""The lowest number that may come again, and the first numbers of an order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.relay.machine.lowest import Lowest, partition_of
from tests.fixtures.examples import examples

LAG_MS = 900_000


def test_what_is_seen_is_told_when_it_is_older_than_the_lag() -> None:
    """Not before, and never above what is in hand."""
    lowest = Lowest(0, LAG_MS)
    lowest.observe(10, 0)
    lowest.observe(20, 1_000)
    assert lowest.told([], LAG_MS - 1) == 0
    assert lowest.told([], LAG_MS) == 10
    assert lowest.told([15, 30], LAG_MS + 1_000) == 15
    assert lowest.told([30], LAG_MS + 1_000) == 20


def test_each_partition_begins_at_its_own_numbers() -> None:
    """The highest 16 bits are the partition."""
    assert partition_of((3 << 48) + 7) == 3
    assert Lowest(3, LAG_MS).told([], 0) == 3 << 48


@pytest.mark.parametrize("is_received", [False, True])
def test_of_a_source_that_was_made_anew_nothing_is_told_that_was_seen_before(
    *, is_received: bool
) -> None:
    """It counts from 1 again: told 5,000, its first messages would be dropped as long over."""
    lowest = Lowest(2, LAG_MS)
    first = 2 << 48
    lowest.observe(first + 5_000, 0)
    assert lowest.told([], LAG_MS) == first + 5_000
    lowest.observe(first + 6_000, LAG_MS)
    if is_received:
        assert lowest.told([first + 2, first + 1], LAG_MS) == first
    else:
        lowest.observe(first + 1, LAG_MS)
    assert lowest.told([], 2 * LAG_MS - 1) == first
    assert lowest.told([], 3 * LAG_MS) <= first + 1


ACTIONS = st.one_of(
    st.tuples(st.just("enqueue"), st.integers(1, 5)),
    st.tuples(st.just("take"), st.integers(0, 9)),
    st.tuples(st.just("send"), st.integers(0, 9)),
    st.tuples(st.just("complete"), st.integers(0, 9)),
    st.tuples(st.just("look"), st.integers(0, 1)),
    st.tuples(st.just("pass"), st.sampled_from((1, 1_000, LAG_MS // 3, LAG_MS))),
    st.tuples(st.just("kill"), st.integers(0, 1)),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(ACTIONS, min_size=20, max_size=120))
def test_nothing_below_what_was_told_comes_again(actions: list[tuple[str, Any]]) -> None:
    """Two processes share a source; what one has sent before it died may come within the lag."""
    now_ms, next_number = 0, 1
    active: set[int] = set()
    held: list[set[int]] = [set(), set()]
    under_way: dict[int, int] = {}
    lows = [Lowest(0, LAG_MS), Lowest(0, LAG_MS)]
    highest = 0
    for name, value in actions:
        which = value % 2
        match name:
            case "enqueue":
                active |= set(range(next_number, next_number + value))
                next_number += value
            case "take":
                free = sorted(active - held[0] - held[1])
                if free:
                    held[which].add(free[value % len(free)])
            case "send" if held[which]:
                number = sorted(held[which])[value % len(held[which])]
                under_way[number] = now_ms
                told = lows[which].told(held[which], now_ms)
                assert told <= number
                highest = max(highest, told)
            case "complete" if held[which]:
                number = sorted(held[which])[value % len(held[which])]
                held[which].discard(number)
                active.discard(number)
            case "look":
                lows[which].observe(min(active, default=next_number), now_ms)
            case "pass":
                now_ms += value
            case "kill":
                held[which].clear()
                lows[which] = Lowest(0, LAG_MS)
        under_way = {each: at for each, at in under_way.items() if at > now_ms - LAG_MS}
        assert highest <= min(active | set(under_way), default=next_number)
