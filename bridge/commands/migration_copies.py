"""The copies of a migration's entities, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial

from bridge.commands.errors import CommandError
from bridge.commands.migration_copying import TOGETHER, CopySides, RunningCopy, places_of
from bridge.commands.output import Output
from bridge.model import entity as model
from bridge.model.properties import EntityKind
from bridge.operations.migration.copy_effects import CopyStopped
from bridge.operations.migration.entity_copy import EntityCopy
from bridge.operations.migration.plan import MigrationSide
from bridge.remote.administration import RemoteAdministration
from bridge.remote.entity import entity_node
from bridge.remote.errors import RemoteNotFound
from bridge.remote.namespace import RemoteNamespace


class EntityCopies:
    """The copies of all entities, side by side; none is received before all are verified."""

    def __init__(
        self,
        namespaces: Sequence[RemoteNamespace],
        at_source: RemoteAdministration,
        at_target: RemoteAdministration,
        run_id: str,
        mark: str,
        there: MigrationSide,
        output: Output,
        check_source: Callable[[], Awaitable[None]],
    ) -> None:
        source, target = namespaces
        self._sides = CopySides(
            source=source,
            target=target,
            administration=at_source,
            run=run_id,
            at_target=there.of,
        )
        self._at_target = at_target
        self._mark = mark
        self._output = output
        self._check_source = check_source
        self._gate = asyncio.Semaphore(TOGETHER)
        self._all_verified = asyncio.Event()
        self._verified = 0
        self._count = 0

    async def run(
        self,
        units: Sequence[model.Queue | model.Topic],
        meant: set[str],
        due_after_ms: int,
        total: int | None,
        asked: asyncio.Event,
    ) -> bool:
        """Return whether all came to their end: a signal ends them before.

        Args:
            total: what progress is shown of; `None`: the target has the mark that all is verified.

        Raises:
            CommandError: one of them cannot go on.
            RemoteError: a namespace refuses, or does not answer.
        """
        self._count = len(units)
        is_verified = total is None
        if is_verified:
            self._all_verified.set()
        with self._output.progress(total, "copying and verifying messages") as progress:
            copies = []
            for unit in units:
                places = places_of(unit, lambda path: path.lower() in meant)
                copy = EntityCopy(places, due_after_ms=due_after_ms, is_verified=is_verified)
                copies.append(
                    RunningCopy(
                        self._sides,
                        unit,
                        copy,
                        places,
                        partial(self._all_are_verified, asked),
                        progress,
                    )
                )
            try:
                ended = await _together([self._copied(each, asked) for each in copies])
            except CopyStopped as error:
                raise CommandError(str(error)) from None
        if not all(ended):
            return False
        await self._remove_mark()
        self._write(copies)
        return True

    async def _copied(self, copy: RunningCopy, asked: asyncio.Event) -> bool:
        async with self._gate:
            return await copy.run(asked)

    async def _all_are_verified(self, asked: asyncio.Event) -> bool:
        """Wait until all entities are verified, and the target has the mark that they are."""
        self._verified += 1
        if self._verified == self._count and not asked.is_set():
            await self._check_source()
            await self._at_target.create("Queue", entity_node(EntityKind.QUEUE, {}), self._mark)
            self._all_verified.set()
            return True
        self._gate.release()
        try:
            waiting = [asyncio.ensure_future(each.wait()) for each in (self._all_verified, asked)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waiting:
                    each.cancel()
        finally:
            await self._gate.acquire()
        return self._all_verified.is_set()

    async def _remove_mark(self) -> None:
        with suppress(RemoteNotFound):
            await self._at_target.delete(self._mark)

    def _write(self, copies: Sequence[RunningCopy]) -> None:
        output = self._output
        rows = [
            {
                "entity": each.entity.path,
                "messages": each.copy.messages,
                "verified": each.copy.verified,
                "cancelled": each.copy.cancelled,
            }
            for each in copies
        ]
        output.table(rows)
        output.say_some("to be known", [note for each in copies for note in each.notes])
        total = sum(each.copy.messages for each in copies)
        output.say(
            f"{total:,} messages are at the target under their numbers, which may be received now. "
            "Start what receives, then what sends."
        )


async def _together(work: Sequence[Coroutine[object, object, bool]]) -> list[bool]:
    """Return the results of all; the first failure ends the others, and is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
