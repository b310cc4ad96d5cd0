"""The messages of a migration's entities, looked at: none is locked, counted or taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial

from bridge.commands.looking import PAGE
from bridge.commands.message_path import DEAD_LETTER
from bridge.commands.output import Progress
from bridge.model import entity as model
from bridge.operations.migration.copy_effects import CopyPlace
from bridge.operations.migration.renumbered_message import copy_bytes, unsayable
from bridge.operations.migration.state_counts import StateCounter, StateCounts
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace

SESSIONS_PAGE = 100

EVER_MS = 1
"""Each state was set behind this (UTC ms)."""


def places(path: str, *, is_topic: bool) -> tuple[tuple[str, bool], ...]:
    """Return the paths at which an entity's messages are, each with whether they are dead there.

    At a topic itself are those alone that are scheduled.
    """
    return ((path, False),) if is_topic else ((path, False), (path + DEAD_LETTER, True))


async def pages(
    management: RemoteManagement, asked: asyncio.Event
) -> AsyncIterator[Sequence[RemoteMessage]]:
    """Yield the messages of an entity by pages, until the last or until a signal has come.

    Raises:
        RemoteError: the namespace refuses, or does not answer.
    """
    next_number = 0
    while not asked.is_set():
        page = await management.peek(next_number, PAGE)
        if page:
            yield page
        numbers = [int(each.sequence_number or 0) for each in page]
        if max(numbers, default=-1) < next_number:
            return
        next_number = max(numbers) + 1


async def sessions_of(
    management: RemoteManagement,
    asked: asyncio.Event | None = None,
    updated_after_ms: int | None = None,
) -> list[str]:
    """Return an entity's sessions: those with messages or a state.

    Args:
        asked: the list ends when it is set.
        updated_after_ms: those alone whose state was set since then.

    Raises:
        RemoteError: the namespace refuses, or does not answer.
    """
    found: dict[str, None] = {}
    skip = 0
    while asked is None or not asked.is_set():
        page = await management.message_sessions(skip, SESSIONS_PAGE, updated_after_ms)
        if not page:
            break
        skip += len(page)
        found.update(dict.fromkeys(page))
    return list(found)


class MessageLook:
    """Counts the messages of entities by peeks.

    Args:
        namespace: the source.
        asked: is set when a signal comes.
        progress: is told of each message.
        renumbered_by: the run that gives messages new numbers; "": they keep theirs.

    Attributes:
        messages: how many were looked at.
        took_s: how long the peeks took.
    """

    def __init__(
        self,
        namespace: RemoteNamespace,
        asked: asyncio.Event,
        progress: Progress,
        renumbered_by: str = "",
    ) -> None:
        self._renumbered_by = renumbered_by
        self._namespace = namespace
        self._asked = asked
        self._progress = progress
        self.messages = 0
        self.took_s = 0.0

    @property
    def measured_per_s(self) -> float | None:
        """Messages a second; `None` for so few that the figure says nothing."""
        return self.messages / self.took_s if self.messages >= PAGE else None

    async def counted(self, entity: model.Entity, given: StateCounts) -> StateCounts:
        """Return what an entity has.

        Args:
            given: what its namespace tells.

        Raises:
            RemoteError: the namespace refuses, or does not answer.
        """
        place = CopyPlace(
            path=entity.path,
            is_ordered_by_topic=isinstance(entity, model.Subscription),
            renumbered_by=self._renumbered_by,
        )
        count = StateCounter()
        if self._renumbered_by:
            count = StateCounter(partial(copy_bytes, place=place), unsayable)
        began_s = time.monotonic()
        for path, is_dead in places(entity.path, is_topic=isinstance(entity, model.Topic)):
            management = await self._namespace.management(path)
            async for page in pages(management, self._asked):
                for message in page:
                    count.add(message, is_dead=is_dead)
                self.messages += len(page)
                self._progress.advance(len(page))
            await management.close()
        self.took_s += time.monotonic() - began_s
        return count.counted(given, *await self._sessions(entity))

    async def _sessions(self, entity: model.Entity) -> tuple[int | None, int | None]:
        """Return how many sessions there are, and how many of them have a state."""
        if isinstance(entity, model.Topic) or not entity.requires_session:
            return None, None
        management = await self._namespace.management(entity.path)
        sessions = await sessions_of(management, self._asked)
        states = await sessions_of(management, self._asked, EVER_MS)
        await management.close()
        return len(sessions), len(states)
