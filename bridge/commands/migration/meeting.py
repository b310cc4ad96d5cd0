"""The work on a migration's entities, side by side, and where the copies wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

TOGETHER: Final = 8
"""Entities, or places of them, that are worked on side by side."""

Done = TypeVar("Done")


class CopyMeeting:
    """Waits until all copies have come; the last one does what then is to be done.

    Who waits lets another copy work meanwhile.

    Args:
        count: how many copies there are.
        gate: who works has entered it.
        asked: is set when a signal comes.
        then: what is done when all have come; the others wait until it is.
    """

    def __init__(
        self,
        count: int,
        gate: asyncio.Semaphore,
        asked: asyncio.Event,
        then: Callable[[], Awaitable[None]],
    ) -> None:
        self._missing = count
        self._gate = gate
        self._asked = asked
        self._then = then
        self._over = asyncio.Event()

    async def wait(self) -> bool:
        """Return whether all have come: a signal may come before."""
        self._missing -= 1
        if not self._missing and not self._asked.is_set():
            await self._then()
            self._over.set()
            return True
        self._gate.release()
        try:
            waiting = [asyncio.ensure_future(each.wait()) for each in (self._over, self._asked)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waiting:
                    each.cancel()
        finally:
            await self._gate.acquire()
        return self._over.is_set()


async def together(
    work: Sequence[Callable[[], Awaitable[Done]]], at_once: int | None = None
) -> list[Done]:
    """Return the results of all, in their order; the first failure ends the others, and is raised.

    Args:
        at_once: how many are done at a time; `None`: all.
    """
    gate = asyncio.Semaphore(at_once or max(len(work), 1))

    async def done(each: Callable[[], Awaitable[Done]]) -> Done:
        async with gate:
            return await each()

    tasks = [asyncio.ensure_future(done(each)) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
