"""Entries that name numbers passed over: read as written, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire import gaps, headers, journal
from bridge.wire.gaps import OWN, Gap
from bridge.wire.journal import JournalSection
from bridge.wire.sections import MalformedEntry, NewerJournal

TABLE = {headers.ENTRY: ("S", b"gap")}
shorts = st.just(OWN) | st.just(b"abcdef")
found = st.builds(
    lambda first, width, short: Gap(first, first + width, short),
    st.integers(0, 2**62),
    st.integers(0, 2**40),
    shorts,
)


@given(st.lists(found, min_size=1, max_size=9))
def test_gaps_are_read_as_they_were_written(written: list[Gap]) -> None:
    """Each series of numbers has its own."""
    body = gaps.encode(written)
    assert gaps.decode(body) == written
    for short in (OWN, b"abcdef"):
        own = [each for each in written if each.short == short]
        assert gaps.gaps_in(TABLE, body, short) == own


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no entry",
        gaps.encode([]),
        gaps.encode([Gap(5, 4)]),
        gaps.encode([Gap(-1, 4)]),
        journal.entry_of(JournalSection.GAPS, b"short"),
        journal.entry_of(JournalSection.BUCKETS, b""),
    ],
)
def test_what_is_no_gap_is_refused_and_passed_over_by_a_peek(body: bytes) -> None:
    """Any client may publish into a stream."""
    with pytest.raises(MalformedEntry):
        gaps.decode(body)
    assert gaps.gaps_in(TABLE, body) == []


def test_entries_of_another_kind_name_no_gap() -> None:
    """Nor do messages."""
    body = gaps.encode([Gap(1, 4)])
    assert gaps.gaps_in({headers.ENTRY: ("S", b"cancel")}, body) == []
    assert gaps.gaps_in({}, body) == []


def test_a_bridge_that_knows_no_gaps_gives_no_numbers() -> None:
    """It would give those again that a gap at the journal's end has passed over."""
    with pytest.raises(NewerJournal):
        journal.check_unknown("hole", gaps.encode([Gap(1, 4)]))
