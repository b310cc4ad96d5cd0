"""The progress of a start that makes many RabbitMQ objects, in lines for people."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 5.0
"""The shortest time between two lines; a start that is shorter prints none."""


class StartProgress:
    """Prints how far a start has come.

    Args:
        clock: the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_s = self._printed_s = self._last_s = clock()

    def note(self, made: int, count: int) -> None:
        """Note the numbers of objects that are made, and of all to be made."""
        self._last_s = now_s = self._clock()
        if now_s - self._printed_s >= EVERY_S:
            self._printed_s = now_s
            print(
                f"start: {made:,} of {count:,} RabbitMQ objects made after "
                f"{now_s - self._begun_s:.0f} s",
                flush=True,
            )

    @property
    def still_s(self) -> float:
        """The seconds since the start, or since the last object was made."""
        return self._clock() - self._last_s
