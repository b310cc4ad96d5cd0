"""How much of the processor the event loop of a gateway takes for one turn.

Its own thread's time is counted, not the clock's. Other processes on the same cores still make it
longer, never shorter: so a bound is stretched by what a fixed piece of work takes longer just then,
and a test that still finds it too long tries again.
"""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

TRIES = 4

_WORK_S = 0.01
"""What the fixed piece of work takes on a core of its own (3 GHz, Python 3.11)."""


class TooSlow(AssertionError):
    """It took more of the processor than it may."""


def check(took_s: float, max_s: float) -> None:
    """Raise `TooSlow` if something took longer than it may on a core of its own."""
    if took_s >= max_s and took_s >= max_s * (factor := _stretch()):
        raise TooSlow(f"{took_s:.3f} s of the processor, {max_s:.3f} s x {factor:.1f} at most")


def _stretch() -> float:
    """Return how many times longer than alone a piece of work takes now; 1 at least."""
    begin = time.thread_time()
    table: dict[int, tuple[int, str]] = {}
    for number in range(100_000):
        table[number & 1023] = (number, str(number))
    return max((time.thread_time() - begin) / _WORK_S, 1.0)


def undisturbed(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Return the test, with more tries if it is `TooSlow`.

    What other tests have left in memory is not collected meanwhile: after thousands of tests that
    alone takes 0.2 s.
    """

    @wraps(test)
    async def tried(**arguments: Any) -> None:
        with warnings.catch_warnings():
            # What an earlier test's client has left open is no fault of this one.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        gc.freeze()
        try:
            for _ in range(TRIES - 1):
                with suppress(TooSlow):
                    return await test(**arguments)
            return await test(**arguments)
        finally:
            gc.unfreeze()

    return tried


class Probe:
    """Measures each turn of the loop that it is started in.

    Attributes:
        longest_s: the longest turn.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last_s = 0.0
        self._is_over = False

    def start(self) -> None:
        """Begin to measure."""
        self._last_s = time.thread_time()
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        if not self._is_over:
            asyncio.get_running_loop().call_soon(self._turn)

    def stop(self) -> None:
        """Measure no more."""
        self._is_over = True


@contextmanager
def probing() -> Iterator[Probe]:
    """Measure the loop's turns."""
    probe = Probe()
    probe.start()
    try:
        yield probe
    finally:
        probe.stop()
