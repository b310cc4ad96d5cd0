"""Rates of counts, by two readings of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.counts import Counts
from bridge.operations.rates import (
    COUNTED,
    ORDERS,
    CountsReading,
    EntityRates,
    gone,
    ordered,
    rates_of,
)


def reading(at_s: float, created: str = "monday", **counts: int) -> CountsReading:
    """Return a reading of an entity that was made on a day."""
    return CountsReading(Counts(**counts), at_s, created)


def only(before: CountsReading | None, after: CountsReading) -> EntityRates:
    """Return the rates of one entity."""
    (found,) = rates_of({} if before is None else {"q": before}, {"q": after})
    return found


def test_a_rate_is_the_change_of_a_count_by_the_time_of_its_own_two_readings() -> None:
    """Whatever the interval was to be: the answers of a page may have taken a while."""
    found = only(reading(10, active=100, dead_letter=3), reading(14, active=90, dead_letter=5))
    assert found.over_s == 4
    assert found.per_s == {
        "active": -2.5, "dead_letter": 0.5, "scheduled": 0, "transfer": 0,
        "transfer_dead_letter": 0,
    }  # fmt: skip
    assert found.fastest == 2.5


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(None, id="made"),
        pytest.param(reading(1, "sunday", active=500), id="made anew: its counts restart"),
        pytest.param(reading(2, active=500), id="no time has passed"),
        pytest.param(reading(3, active=500), id="readings that have overtaken each other"),
    ],
)
def test_where_no_rate_can_be_known_none_is_said(before: CountsReading | None) -> None:
    """Not 0 either, and not that of the entity that had the name before."""
    found = only(before, reading(2, active=7))
    assert (found.over_s, found.per_s, found.fastest) == (None, {}, 0)
    assert found.counts.active == 7


def test_an_entity_that_is_removed_is_gone_and_has_no_rates() -> None:
    """Nor has it any when it is back later, as nobody knows when."""
    before = {"a": reading(1, active=5), "b": reading(1)}
    after = {"b": reading(2)}
    assert gone(before, after) == ["a"]
    assert [each.path for each in rates_of(before, after)] == ["b"]
    back = rates_of(after, {"a": reading(3), "b": reading(3)})
    assert [(each.path, each.over_s) for each in back] == [("a", None), ("b", 1)]


COUNTS = st.builds(Counts, **{name: st.integers(min_value=0, max_value=10**9) for name in COUNTED})


@given(COUNTS, COUNTS, st.floats(min_value=0.001, max_value=10_000))
def test_the_count_before_and_the_rate_give_the_count_after(
    before: Counts, after: Counts, over_s: float
) -> None:
    """Of every count."""
    found = only(CountsReading(before, 0.0), CountsReading(after, over_s))
    for name in COUNTED:
        expected = getattr(before, name) + found.per_s[name] * over_s
        assert expected == pytest.approx(getattr(after, name), abs=1e-3, rel=1e-9)


def rated(path: str, active: int, dead: int, scheduled: int, *changes: float) -> EntityRates:
    """Return an entity with counts and their changes."""
    counts = Counts(active=active, dead_letter=dead, scheduled=scheduled)
    return EntityRates(path, counts, 1.0, dict(zip(COUNTED, changes, strict=False)))


@pytest.mark.parametrize(
    ("order", "paths"),
    [
        ("change", "cabd"),
        ("backlog", "bdac"),
        ("active", "bacd"),
        ("dead-letter", "dabc"),
        ("scheduled", "bdac"),
        ("path", "abcd"),
    ],
)
def test_entities_are_sorted_by_the_largest_then_by_their_backlog(order: str, paths: str) -> None:
    """A backlog that falls fast is as interesting as one that grows; equal ones go by name."""
    found = [
        rated("b", 9, 0, 4, 0.0, 0.5),
        rated("d", 0, 9, 0),
        rated("C", 2, 0, 0, -5.0, 1.0),
        rated("a", 3, 1, 0, 2.0),
    ]
    assert "".join(each.path.lower() for each in ordered(found, order)) == paths


def test_every_order_takes_entities_of_which_nothing_is_known() -> None:
    """As in the first reading."""
    found = [EntityRates("b", Counts(), None, {}), EntityRates("a", Counts(), None, {})]
    for order in ORDERS:
        assert [each.path for each in ordered(found, order)] == ["a", "b"]
