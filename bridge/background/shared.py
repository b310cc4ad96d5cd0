"""Work that several callers ask for at the same time, done once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Shared(Generic[Item, Result]):
    """Does one work for all callers that wait; one run follows another.

    A run begins after its callers have asked: no result is older than its question.

    Args:
        work: does the work for the items of all its callers, in the order of their calls.
    """

    def __init__(self, work: Callable[[list[Item]], Awaitable[Result]]) -> None:
        self._work = work
        self._items: list[Item] = []
        self._next: asyncio.Future[Result] | None = None
        self._running: asyncio.Task[None] | None = None

    async def of(self, items: Iterable[Item] = ()) -> Result:
        """Return the result of a run with these items, or raise the run's error.

        A caller that is cancelled disturbs no other one, and does not end the run.
        """
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = loop.create_future()
        self._items += items
        result = self._next
        if self._running is None:
            self._running = loop.create_task(self._run())
        return await asyncio.shield(result)

    async def _run(self) -> None:
        try:
            while self._next is not None:
                result, self._next = self._next, None
                items, self._items = self._items, []
                try:
                    found = await self._work(items)
                except Exception as error:
                    result.set_exception(error)
                    result.exception()  # retrieved, though every caller may be cancelled by now
                except BaseException:
                    result.cancel()
                    raise
                else:
                    result.set_result(found)
        finally:
            self._running = None
            if self._next is not None:  # this task was cancelled: the loop ends
                self._next.cancel()
                self._next, self._items = None, []
