"""Fewer runs of the garbage collector, for a while."""

from __future__ import annotations

import gc

from bridge.engine.garbage import rare_collections

OBJECTS = 50_000


def _runs() -> int:
    """Make many objects that stay; returns how often they were looked at."""
    before = sum(each["collections"] for each in gc.get_stats())
    kept = [[number] for number in range(OBJECTS)]
    assert len(kept) == OBJECTS
    return sum(each["collections"] for each in gc.get_stats()) - before


def test_many_messages_that_stay_are_hardly_looked_at() -> None:
    """As long as any such block lasts; then the setting is what it was."""
    usual = gc.get_threshold()
    with rare_collections():
        with rare_collections():
            assert _runs() <= 1
        assert _runs() <= 1
    assert gc.get_threshold() == usual
    assert _runs() > 10
