"""Cyclic garbage collection in steps: no collection looks at all of a large heap.

Python looks at every object of the oldest generation again whenever the generation has grown by a
quarter. The event loop stands still meanwhile: for 0.1 to 0.4 s when one client had made 5,000
links. So when a collection leaves `STEP_OBJECTS` or more in the oldest generation they are frozen,
and later ones look at newer objects only. The whole heap is looked at when it has grown to `GROWTH`
times its size, or after `WHOLE_S`. What no cycle holds is freed at once as ever, frozen or not.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

STEP_OBJECTS = 30_000
GROWTH = 4
WHOLE_S = 3_600.0

_OLDEST = 2


class Collections:
    """The state of the process's collections; see the module.

    Attributes:
        wholes: how often the whole heap was looked at since the start.
    """

    def __init__(self) -> None:
        self.wholes = 0
        gc.collect()
        self._begin()

    def _begin(self) -> None:
        """Freeze the heap, which has been looked at whole."""
        gc.freeze()
        self._whole_s = time.monotonic()
        self._frozen = self._least = max(gc.get_freeze_count(), 4 * STEP_OBJECTS)
        self._is_whole = False

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Handle the begin or the end of a collection (`gc.callbacks`)."""
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            self._is_whole = self._is_due()
            if self._is_whole:
                self.wholes += 1
                gc.unfreeze()
        elif self._is_whole:
            self._begin()
        elif (count := len(gc.get_objects(_OLDEST))) >= STEP_OBJECTS:
            gc.freeze()
            self._frozen += count

    def _is_due(self) -> bool:
        """Whether the whole heap is to be looked at."""
        if self._frozen >= GROWTH * self._least:
            self._frozen = gc.get_freeze_count()  # many may have been freed since
        is_late = time.monotonic() - self._whole_s >= WHOLE_S
        return is_late or self._frozen >= GROWTH * self._least


@contextmanager
def in_steps() -> Iterator[Collections]:
    """Collect garbage in steps for as long as the context lasts."""
    collections = Collections()
    gc.callbacks.append(collections.on_collection)
    try:
        yield collections
    finally:
        gc.callbacks.remove(collections.on_collection)
        gc.unfreeze()
