"""What is said of a loop that stood still."""

from __future__ import annotations

import asyncio
import time

from bridge.cli.stalls import BOUNDS_S, Stalls


async def test_a_loop_that_stands_still() -> None:
    """A stall counts in the bucket of its length, and is then the longest."""
    stalls = Stalls()
    stalls.start()
    try:
        time.sleep(0.3)  # noqa: ASYNC251
        async with asyncio.timeout(120):
            while not stalls.longest_s:  # noqa: ASYNC110
                await asyncio.sleep(0)
    finally:
        stalls.stop()

    assert stalls.longest_s > 0.25
    assert sum(stalls.counts[BOUNDS_S.index(0.25) + 1 :]) == 1
    assert stalls.total_s >= stalls.longest_s
