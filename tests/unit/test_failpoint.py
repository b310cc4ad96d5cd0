"""Failpoints: the settings that arm one, and those that are refused."""

from __future__ import annotations

import pytest

from bridge.broker.failpoint import HAND_OVERS, Failpoint, failpoints


def test_each_hand_over_has_its_three_points() -> None:
    """A site is published, confirmed and acked, and can be killed at each."""
    names = set(failpoints())

    assert names >= {
        f"{site}.{step}" for site in HAND_OVERS for step in ("published", "confirmed", "acked")
    }


@pytest.mark.parametrize("setting", ["", "test.hop.published", "test.hop.acked:3"])
def test_a_point_is_armed_by_its_name(setting: str) -> None:
    """The name before the colon is what is armed."""
    assert setting.partition(":")[0] == Failpoint(setting).name


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("nope", "no failpoint nope"),
        ("test.hop.acked:0", "not a number of passes"),
        ("test.hop.acked:x", "not a number of passes"),
    ],
)
def test_a_wrong_setting_is_refused(setting: str, sentence: str) -> None:
    """A crash test that would never crash does not start."""
    with pytest.raises(ValueError, match=sentence):
        Failpoint(setting)
