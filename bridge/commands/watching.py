"""Reading and showing again and again, until a signal comes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

Found = TypeVar("Found")

SHORTEST_S = 0.1
"""No shorter interval is heeded."""


async def repeat(
    read: Callable[[], Coroutine[Any, Any, Found]],
    show: Callable[[Found], None],
    *,
    asked: asyncio.Event,
    interval_s: float,
    count: int | None = None,
) -> None:
    """Read and show in every interval from now on, the first time at the end of the first one.

    There is one read at a time: while it lasts, no other begins, and the intervals that end
    meanwhile are left out. An error of a read ends this.

    Args:
        asked: set when this is to end; a read that is under way is given up then.
        count: how often; `None`: until `asked` is set.
    """
    loop = asyncio.get_running_loop()
    interval_s = max(interval_s, SHORTEST_S)
    began_s, done = loop.time(), 0
    while count is None or done < count:
        turn = math.floor((loop.time() - began_s) / interval_s) + 1
        if await _is_set(asked, began_s + turn * interval_s - loop.time()):
            return
        reading = await unless(asked, read())
        if reading is None:
            return
        show(reading.result())
        done += 1


async def unless(
    asked: asyncio.Event, work: Coroutine[Any, Any, Found]
) -> asyncio.Future[Found] | None:
    """Do some work, and return it when it has ended, with its result or its error.

    Args:
        asked: set when this is to end; the work is cancelled then, and `None` returned when it has
            ended.
    """
    task = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(asked.wait())
    try:
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        return task if task.done() else None
    finally:
        for each in (task, stop):
            each.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)


async def _is_set(asked: asyncio.Event, within_s: float) -> bool:
    """Wait, but no longer than until it is set; return whether it is."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asked.wait(), within_s)
    return asked.is_set()
