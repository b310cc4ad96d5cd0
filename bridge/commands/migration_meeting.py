"""Where the copies of a migration's entities wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


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
