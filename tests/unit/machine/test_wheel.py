"""The timing wheel and the index of what is scheduled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bridge.machine.inbox.pending import Pending
from bridge.machine.inbox.wheel import (
    COARSE_LEAD_MS,
    FACTOR,
    GRACE_MS,
    LEAD_MS,
    LEVELS,
    WIDTHS_MS,
    BucketKey,
    Wheel,
    place,
)
from bridge.model.number import NUMBER_MAX

YEAR_9999_MS = 253_402_300_799_000
TIMES = st.integers(0, YEAR_9999_MS)


@given(TIMES, TIMES)
def test_a_bucket_covers_the_times_of_its_messages(due_ms: int, now_ms: int) -> None:
    """A message is in a bucket whose interval holds its time, or now when that has passed."""
    where = place(due_ms, now_ms)
    assert where.start_ms <= max(due_ms, now_ms) < where.end_ms


@given(TIMES, st.integers(0, 10**12), st.integers(1, LEVELS - 1))
def test_a_message_moves_to_a_finer_bucket(now_ms: int, ahead_ms: int, level: int) -> None:
    """Below a coarse bucket there is always a finer one, so no message goes round for ever."""
    assert place(now_ms + ahead_ms, now_ms, below=level).level < level


@given(TIMES, st.lists(st.integers(0, 10**10), max_size=200))
def test_the_number_of_buckets_depends_on_how_far_ahead(now_ms: int, ahead: list[int]) -> None:
    """For any number of waiting messages: at most 65 buckets a level."""
    places = {place(now_ms + each, now_ms) for each in ahead}
    for level in range(LEVELS):
        assert sum(each.level == level for each in places) <= FACTOR + 1


@pytest.mark.parametrize(
    ("ahead_ms", "level"),
    [(0, 0), (127_999, 0), (128_000, 1), (8_191_999, 1), (8_192_000, 2), (10**14, 5)],
)
def test_levels_begin_where_the_finer_one_ends(ahead_ms: int, level: int) -> None:
    """64 buckets of a level reach as far as one of the next."""
    assert place(ahead_ms, 0).level == level


def test_a_bucket_opens_before_its_interval_and_ends_after_it() -> None:
    """The more it holds, the earlier it opens."""
    wheel = Wheel()
    fine = wheel.add(BucketKey(0, 1_000))
    coarse = wheel.add(BucketKey(1, 1_000))
    assert wheel.to_open(fine.place.start_ms - LEAD_MS - 1) == []
    assert [fine] == wheel.to_open(fine.place.start_ms - LEAD_MS)
    assert coarse.opens_ms == coarse.place.start_ms - COARSE_LEAD_MS
    fine.count = 50_000
    assert fine.opens_ms == fine.place.start_ms - LEAD_MS - 5_000

    fine.is_open = True

    assert wheel.to_end(fine.place.end_ms + GRACE_MS - 1) == []
    assert [fine] == wheel.to_end(fine.place.end_ms + GRACE_MS)
    assert wheel.next_ends_ms() == fine.place.end_ms + GRACE_MS
    assert wheel.next_opens_ms() == coarse.opens_ms


def test_the_widths_are_powers_of_the_factor() -> None:
    """2 s, 128 s, and so on."""
    assert WIDTHS_MS[:3] == (2_000, 128_000, 8_192_000)


class PendingMachine(RuleBasedStateMachine):
    """The index beside a plain dictionary; numbers rise, and roll over once in a while."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = Pending()
        self.model: dict[int, int] = {}
        self.next = NUMBER_MAX - 60

    @rule(count=st.integers(1, 150), due_ms=st.integers(0, 10**14))
    def add(self, count: int, due_ms: int) -> None:
        """Schedule some messages."""
        for _ in range(count):
            self.pending.add(self.next, due_ms, self.next & 0xFFFF)
            self.model[self.next] = due_ms
            self.next = self.next + 1 if self.next < NUMBER_MAX else 0

    @rule(data=st.data(), count=st.integers(1, 200))
    def remove(self, data: st.DataObject, count: int) -> None:
        """Cancel or activate some; whoever is gone cannot be removed again."""
        for number in sorted(self.model)[:: max(1, len(self.model) // count)]:
            assert self.pending.remove(number)
            assert not self.pending.remove(number)
            del self.model[number]

    @rule(width=st.integers(1, 2**40), back=st.integers(0, 200))
    def remove_between(self, width: int, back: int) -> None:
        """A command is taken back: whatever it has scheduled is gone."""
        first = max(self.next - back, 0)
        self.pending.remove_between(first, first + width)
        for number in [each for each in self.model if first <= each <= first + width]:
            del self.model[number]

    @rule()
    def write_and_read(self) -> None:
        """A snapshot holds all of it."""
        self.pending = Pending.decode(self.pending.encode())

    @invariant()
    def both_agree(self) -> None:
        """The same numbers with the same times."""
        assert dict(self.pending) == self.model
        assert len(self.pending) == len(self.model)
        for number in list(self.model)[:3]:
            assert self.pending.matches(number, number & 0xFFFF)
            assert not self.pending.matches(number, 0x10000)
        assert self.next not in self.pending or self.next in self.model


TestPending = PendingMachine.TestCase


def test_a_cut_index_is_refused() -> None:
    """An index that ends too early is no index."""
    pending = Pending()
    pending.add(1, 2, 3)
    raw = pending.encode()
    for end in range(1, len(raw)):
        with pytest.raises(ValueError, match="too early"):
            Pending.decode(raw[:end])
