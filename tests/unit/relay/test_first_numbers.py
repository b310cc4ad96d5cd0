"""Nothing overtakes in a route of order = "entity" what an earlier process has locked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.relay.machine.first_numbers import LOCK_MS_MAX, FirstNumbers
from bridge.relay.machine.lowest import PARTITION_SHIFT

PAGE = 3


def taken(first: FirstNumbers, number: int, active: list[int], now_ms: int = 0) -> int | None:
    """Take a message of a source that has these active ones, by pages; return what is missing."""
    at = first.look_from(number, now_ms)
    while at is not None and at <= number:
        page = [each for each in active if each >= at][:PAGE]
        to = page[-1] + 1 if page else number + 1
        first.looked(page, to)
        at = None if page else to
    return first.missing(number)


def test_nothing_overtakes_what_another_process_has_locked() -> None:
    """However many it has locked, and however many came before them."""
    first = FirstNumbers(0)
    active = list(range(1, 60))
    assert [taken(first, each, active) for each in range(1, 21)] == [None] * 20
    assert taken(first, 41, active) == 21
    assert taken(first, 21, active) is None


def test_what_has_gone_is_not_waited_for() -> None:
    """It has expired, or somebody else has received it."""
    first = FirstNumbers(0)
    assert taken(first, 1, [1, 2, 3]) is None
    assert taken(first, 3, [3]) is None


def test_nothing_is_looked_at_when_no_lock_can_be_older() -> None:
    """A lock lasts five minutes at most, and is renewed by nobody who has ended."""
    first = FirstNumbers(1_000)
    assert first.look_from(5, 1_000 + LOCK_MS_MAX - 1) == 0
    assert first.look_from(5, 1_000 + LOCK_MS_MAX) is None


@given(st.data())
def test_whatever_is_locked_or_goes_the_order_stands(data: st.DataObject) -> None:
    """Messages are locked, unlocked, gone and new between any two that are taken.

    Each one that is taken is the lowest of those that are there; what is taken never has to wait
    for one that is not.
    """
    first = FirstNumbers(0)
    numbers = data.draw(st.lists(st.integers(1, 40), unique=True, max_size=15).map(sorted))
    locked = set(data.draw(st.lists(st.sampled_from(numbers))) if numbers else [])
    highest = 40
    relayed: list[int] = []
    for _ in range(data.draw(st.integers(0, 40))):
        act = data.draw(st.sampled_from(["take", "take", "unlock", "go", "new"]))
        if act == "new":
            highest += data.draw(st.integers(1, 3))
            numbers.append(highest)
        elif act == "unlock" and locked:
            locked.discard(data.draw(st.sampled_from(sorted(locked))))
        elif act == "go" and numbers:
            gone = data.draw(st.sampled_from(numbers))
            numbers.remove(gone)
            locked.discard(gone)
        elif act == "take":
            free = [each for each in numbers if each not in locked]
            if not free:
                continue
            missing = taken(first, free[0], numbers)
            if missing is None:
                assert free[0] == numbers[0]
                relayed.append(free[0])
                numbers.remove(free[0])
            else:
                assert missing == numbers[0]
                assert missing in locked
                first = FirstNumbers(0)  # given back, and begun again
    assert relayed == sorted(relayed)


@given(st.permutations(range(1, 13)), st.integers(1, 3), st.integers(1, 4), st.integers(1, 12))
def test_in_whatever_order_a_source_hands_out_each_partition_has_its_own(
    order: list[int], partitions: int, at_once: int, credit: int
) -> None:
    """What has come is sorted, and more is awaited as long as there is room; then all goes back.

    With room for all everything is taken in the first run.
    """
    numbers = [(each % partitions << PARTITION_SHIFT) + each for each in order]
    relayed: list[int] = []
    for _ in range(len(numbers)):
        firsts = [FirstNumbers(0, each) for each in range(partitions)]
        active = [each for each in numbers if each not in relayed]
        found: list[int] = []
        while len(found) < min(credit, len(active)):
            found = sorted(active[: min(len(found) + at_once, credit)])
            for each in found:
                own = each >> PARTITION_SHIFT
                there = sorted(one for one in active if one >> PARTITION_SHIFT == own)
                if taken(firsts[own], each, there) is not None:
                    break
                if each not in relayed:
                    relayed.append(each)
        if credit >= len(numbers):
            assert len(relayed) == len(numbers)
    for own in range(partitions):
        found = [each for each in relayed if each >> PARTITION_SHIFT == own]
        assert found == sorted(found)
