"""The watch of temporary entities: whatever the clock does, and whatever comes and goes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from bridge.model import entity as model
from bridge.sidecar.idle_watch import IdleWatch
from bridge.topology.entity_table import EntityTable
from tests.fixtures.waiting import until

HOUR_MS = 3_600_000
ORDERS = model.Queue(name="orders", auto_delete_on_idle_ms=300_000)


class Process:
    """The process of a watch: its sidecar leads nothing, or one entity; deletions are noted.

    Attributes:
        now_ms: the time.
        asked: how often it was asked for a leader.
        deleted: the deleted entities.
    """

    def __init__(self) -> None:
        self.now_ms = 10 * HOUR_MS
        self.asked = 0
        self.deleted: list[str] = []
        self.led: model.SendEntity | None = None
        self.routes = self

    def leader_of(self, path: str) -> object:
        """Return a leader, if there is one."""
        self.asked += 1
        return None if self.led is None else SimpleNamespace(name=self.led.path, entity=self.led)

    async def delete(self, path: str, *conditions: Callable[[], Awaitable[bool]]) -> None:
        """Delete an entity."""
        self.deleted.append(path)


@asynccontextmanager
async def watching(process: Process) -> AsyncIterator[IdleWatch]:
    """Let a watch look a thousand times a second."""
    watch = IdleWatch(cast(Any, process), cast(Any, process), lambda: process.now_ms, tick_s=0.001)
    running = asyncio.create_task(watch.run())
    yield watch
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_clock_that_is_put_back_delays_no_look() -> None:
    """A look that was due a second later is due at once, not an hour later."""
    process, table = Process(), EntityTable()
    changes = table.apply({"orders": ORDERS})
    assert changes is not None
    async with watching(process) as watch:
        watch.follow(changes)
        await until(lambda: process.asked > 0)
        process.now_ms -= HOUR_MS
        before = process.asked
        await until(lambda: process.asked > before)


async def test_nothing_stays_of_what_was_done_for_an_entity_that_is_gone() -> None:
    """Memory does not grow with temporary entities that come and go."""
    process, table = Process(), EntityTable()
    process.led = deleting = model.Queue(name="orders", status=model.EntityStatus.DELETING)
    changes, gone = table.apply({"orders": deleting}), table.apply({"orders": None})
    assert changes is not None
    assert gone is not None
    async with watching(process) as watch:
        watch.follow(changes)
        await until(lambda: process.deleted)
        watch.follow(gone)
        await until(lambda: not _works())


def _works() -> list[object]:
    gc.collect()
    tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task)]
    return [each for each in tasks if each.get_name() == "idle watch orders"]
