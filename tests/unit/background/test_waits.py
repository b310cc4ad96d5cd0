"""Waits: what health says of work that waits."""

from __future__ import annotations

import pytest

from bridge.background.waits import NAMED_MAX, Waits


class Clock:
    """A clock that is put by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """A monotonic clock at 0 s, which is 1970 in these tests."""
    return Clock()


@pytest.fixture
def waits(clock: Clock) -> Waits:
    """Nothing waits yet."""
    return Waits(clock, clock)


def test_what_waits_for_more_than_two_seconds_is_named_with_its_reason(
    waits: Waits, clock: Clock
) -> None:
    """Shorter waits are everyday life; the sentence says since when it waits, and for what now."""
    with waits.begin("orders", "its journal is being read") as wait:
        clock.now_s = 2.0
        assert waits.sentences() == []
        clock.now_s = 3.0
        wait.reason = "its bucket queue is being declared"
        assert waits.sentences() == [
            "'orders' waits since 1970-01-01T00:00:00Z: its bucket queue is being declared."
        ]
        assert waits.longest_s == 3.0
    assert (waits.sentences(), waits.longest_s) == ([], 0.0)


def test_a_wait_that_ends_with_an_error_is_over(waits: Waits, clock: Clock) -> None:
    """Also one that was ended before by hand."""
    with pytest.raises(KeyError), waits.begin("orders", "RabbitMQ"):
        raise KeyError
    wait = waits.begin("orders", "RabbitMQ")
    wait.end()
    wait.end()
    clock.now_s = 60.0
    assert not waits.late


def test_two_waits_of_one_entity_are_two(waits: Waits, clock: Clock) -> None:
    """The end of one does not hide the other."""
    first, second = waits.begin("orders", "one"), waits.begin("orders", "one")
    first.end()
    clock.now_s = 9.0
    assert waits.late == [second]


def test_of_many_waits_the_longest_are_named(waits: Waits, clock: Clock) -> None:
    """The others are counted, and what health names elsewhere is left out."""
    for number in range(NAMED_MAX + 3):
        clock.now_s = float(number)
        waits.begin(f"queue {number}", "RabbitMQ")
    clock.now_s = 60.0
    said = waits.sentences({"queue 0"})
    assert len(said) == NAMED_MAX + 1
    assert said[0].startswith("'queue 1' waits since 1970-01-01T00:00:01Z")
    assert said[-1] == "2 more wait."
