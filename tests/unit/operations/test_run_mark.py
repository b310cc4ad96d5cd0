"""The mark that all of a run is verified: of the entities that were there then, or refused."""

from __future__ import annotations

import pytest

from bridge.operations.migration.run_mark import FoundMark, digest_of, doubts

MARKED = "2026-01-01T00:01:00.1234567Z"
BEFORE = "2026-01-01T00:00:00Z"
BEHIND = "2026-01-01T00:02:00Z"
PATHS = {"orders", "t", "t/subscriptions/a"}


@pytest.mark.parametrize(
    ("created", "verified", "told"),
    [
        (dict.fromkeys(PATHS, BEFORE), PATHS, []),
        (dict.fromkeys(PATHS, "2026-01-01T00:01:03Z"), PATHS, []),
        (dict.fromkeys(PATHS, ""), PATHS, []),
        (dict.fromkeys(PATHS - {"orders"}, BEFORE), PATHS, ["orders is not at the target."]),
        (
            dict.fromkeys(PATHS, BEFORE) | {"orders": BEHIND},
            PATHS,
            ["orders was made at the target behind the mark."],
        ),
        (
            dict.fromkeys(PATHS, BEFORE),
            PATHS - {"t/subscriptions/a"},
            ["The mark is of other entities than these 3."],
        ),
    ],
)
def test_what_is_missing_newer_or_none_of_the_marks_is_named(
    created: dict[str, str], verified: set[str], told: list[str]
) -> None:
    """A few seconds may be the clocks of two bridges; a time that is not told says nothing."""
    found = FoundMark(MARKED, digest_of(verified))
    assert doubts(found, PATHS, created) == told
