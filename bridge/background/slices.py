"""Long work on many items, in slices: other tasks get their turns of the event loop in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TypeVar

SLICE_S = 0.002
"""How long items are made before other tasks get their turn of the event loop."""

Item = TypeVar("Item")


async def in_slices(each: Iterator[Item]) -> list[Item]:
    """Return the items of an iterator; other tasks get turns of the event loop in between."""
    loop = asyncio.get_running_loop()
    items = []
    end_s = loop.time() + SLICE_S
    for item in each:
        items.append(item)
        if loop.time() >= end_s:
            await asyncio.sleep(0)
            end_s = loop.time() + SLICE_S
    return items
