"""Collections of garbage look at new objects, and in the end at all."""

from __future__ import annotations

import gc
import weakref

import pytest

from bridge.cli import garbage


class Cycle:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.own = self


def test_a_collection_does_not_look_again_at_what_many_have_survived() -> None:
    """A cycle that ends later waits until the whole heap is looked at."""
    with garbage.in_steps() as collections:
        survivors = [Cycle() for _ in range(garbage.STEP_OBJECTS + 1)]
        gc.collect()
        assert len(gc.get_objects(2)) < garbage.STEP_OBJECTS
        last = weakref.ref(survivors[-1])
        survivors.clear()
        gc.collect()
        assert last() is not None
        collections._whole_s -= garbage.WHOLE_S
        gc.collect()
        assert (last(), collections.wholes) == (None, 1)


def test_the_whole_heap_is_looked_at_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage that was frozen is a bounded share of the memory."""
    monkeypatch.setattr(garbage, "STEP_OBJECTS", 1_000)
    monkeypatch.setattr(garbage, "GROWTH", 1.1)
    with garbage.in_steps() as collections:
        kept: list[list[Cycle]] = []
        while not collections.wholes:
            kept.append([Cycle() for _ in range(10_000)])
            gc.collect()
            assert len(kept) < 1_000
        gone = weakref.ref(kept[0][0])
        kept.clear()
        while gone() is not None:
            kept.append([Cycle() for _ in range(10_000)])
            gc.collect()
            assert len(kept) < 1_000


def test_small_garbage_is_collected_as_ever() -> None:
    """A heap that hardly grows is not frozen."""
    with garbage.in_steps() as collections:
        gone = weakref.ref(Cycle())
        gc.collect()
        assert (gone(), collections.wholes) == (None, 0)
