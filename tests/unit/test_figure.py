"""A benchmark's figure fails below its floor, unless one of its own rounds reached it."""

from __future__ import annotations

from tests.bench.figure import Figure, compare


def test_a_median_above_its_floor_passes() -> None:
    """At the floor is enough."""
    figure = compare("hop", "1/s", [60, 70, 80], [100, 100, 100], peer="shovel", floor=0.7)
    assert figure.passes
    assert not figure.is_within_spread
    assert figure.line().endswith("0.70 >= 0.7  ok")


def test_a_median_below_its_floor_fails_when_no_round_reached_it() -> None:
    """The best of three rounds is below, too."""
    figure = compare("hop", "1/s", [60, 65, 69], [100, 100, 100], peer="shovel", floor=0.7)
    assert not figure.passes
    assert figure.line().endswith("0.65 >= 0.7  BELOW ITS FLOOR")


def test_a_miss_within_the_spread_of_the_rounds_passes_and_says_so() -> None:
    """One of three rounds is above the floor."""
    figure = compare("hop", "1/s", [60, 65, 75], [100, 100, 100], peer="shovel", floor=0.7)
    assert figure.passes
    assert figure.line().endswith("0.65 >= 0.7  missed within its rounds, 0.60 to 0.75")


def test_series_that_were_not_taken_in_turns_have_no_spread() -> None:
    """Four samples beside two are no rounds: nothing excuses the miss."""
    figure = compare("hop", "1/s", [60, 65, 75, 75], [100, 110], peer="shovel", floor=0.7)
    assert not figure.passes


def test_a_ceiling_without_rounds_fails_above_it() -> None:
    """6 ms where 5 are allowed."""
    figure = Figure(name="late", unit="ms", ours=6, ratio=6, floor=5, is_ceiling=True)
    assert not figure.passes
