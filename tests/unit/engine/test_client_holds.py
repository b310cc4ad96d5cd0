"""What clients say that they hold is summed, and believed for a while."""

from __future__ import annotations

import pytest

from bridge.engine.client_holds import TRUE_S, ClientHolds


def test_the_last_that_each_client_says_counts() -> None:
    """For 20 s: a client that died says nothing more."""
    now_s = 0.0
    holds = ClientHolds(lambda: now_s)
    assert holds.of("orders") == [0, 0]
    holds.note("Orders", "one", [3, 1])
    holds.note("orders", "two", [2, 0])
    holds.note("orders", "one", [4, 0])
    holds.note("others", "one", [9, 9])
    assert holds.of("orders") == [6, 0]
    now_s = TRUE_S - 1
    holds.note("orders", "two", [1, 1])
    now_s = TRUE_S
    assert holds.of("orders") == [1, 1]
    holds.note("orders", "two", [0, 0])
    assert holds.of("orders") == [0, 0]


def test_what_is_true_no_more_is_forgotten() -> None:
    """Also of entities that are gone, and that nobody asks for."""
    now_s = 0.0
    holds = ClientHolds(lambda: now_s)
    for number in range(10):
        holds.note(f"gone-{number}", "one", [1, 0])
    holds.note("orders", "one", [1, 0])
    holds.note("orders", "one", [0, 0])
    assert len(holds) == 10
    now_s = TRUE_S
    holds.note("orders", "two", [1, 0])
    assert len(holds) == 1


@pytest.mark.parametrize("counts", [[], [1], [1, 2, 3], [-1, 0]])
def test_what_are_no_counts_is_refused(counts: list[int]) -> None:
    """Before anything is noted."""
    holds = ClientHolds()
    with pytest.raises(ValueError, match="counts"):
        holds.note("orders", "one", counts)
    assert holds.of("orders") == [0, 0]
