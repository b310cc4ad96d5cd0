"""Entries of a settled stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.wire import sections
from bridge.wire.settled import Settled, SettledSection, entries

NUMBERS = st.integers(0, 2**63 - 1)
RANGES = st.lists(st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair))))
COUNTS = st.dictionaries(NUMBERS, st.integers(0, 2**32 - 1))


@given(RANGES, RANGES, COUNTS)
def test_ranges_and_counts_come_back_as_they_were_written(
    active: list[tuple[int, int]], deferred: list[tuple[int, int]], failed: dict[int, int]
) -> None:
    """In as many entries as RabbitMQ takes."""
    found = [Settled.decode(body) for body in entries(active, deferred, failed)]
    assert [each for entry in found for each in entry.active] == active
    assert [each for entry in found for each in entry.deferred] == deferred
    assert [each for entry in found for each in entry.failed.items()] == list(failed.items())


def test_a_bridge_that_knows_no_counts_reads_the_rest() -> None:
    """Bridges of two versions work beside each other."""
    body = Settled(active=[(1, 2)], failed={3: 1}).encode()
    assert sections.decode(
        body, {SettledSection.ACTIVE, SettledSection.DEFERRED, SettledSection.MARK}
    ).keys() == {SettledSection.ACTIVE}
