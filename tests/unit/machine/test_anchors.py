"""Where a number may stand is estimated from what was seen."""

from __future__ import annotations

from bridge.machine.browse.anchors import SPACING, Anchors


def test_between_two_places_the_estimate_is_in_proportion() -> None:
    """And outside of them as far away as the number is."""
    anchors = Anchors()
    assert anchors.estimate(5) is None
    anchors.see(1_000, 2_000)
    anchors.see(2_000, 4_000)
    assert anchors.estimate(1_500) == 3_000
    assert anchors.estimate(990) == 1_990
    assert anchors.estimate(2_010) == 4_010


def test_few_places_are_kept_and_they_rise() -> None:
    """A message published again after a failure stands behind higher numbers, and is no place."""
    anchors = Anchors()
    for number in range(100 * SPACING):
        anchors.see(number, 2 * number)
    assert len(anchors) <= 200
    count = len(anchors)
    anchors.see(50, 100 * SPACING * 3)
    assert len(anchors) == count
    assert all(abs((anchors.estimate(n) or 0) - 2 * n) <= SPACING for n in range(0, 5_000, 37))
