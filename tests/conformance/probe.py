"""How much of the processor the event loop of a gateway takes for one turn.

Its own thread's time is counted, not the clock's: other processes and threads do not disturb it.
"""

from __future__ import annotations

import asyncio
import time


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
