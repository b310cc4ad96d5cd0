"""Carries out what the way back of one entity wants done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from bridge.commands.migration.record import CopyRecord
from bridge.commands.migration.return_settling import SUBSCRIPTIONS, Bringing, settle
from bridge.commands.migration.return_states import ReturnStates, sessions
from bridge.commands.output import Progress
from bridge.model import entity as model
from bridge.operations.migration.copy_effects import (
    CancelAtSource,
    CopyAnswer,
    CopyCount,
    CopyDone,
    CopyPause,
    CopyPlace,
    CountSource,
    ListSourceSessions,
    PeekPage,
)
from bridge.operations.migration.entity_return import EntityReturn
from bridge.operations.migration.last_copied import LastCopied
from bridge.operations.migration.return_effects import (
    AgreeToReturn,
    AwaitLocks,
    BringToSource,
    CloseTarget,
    HoldForReturn,
    ReturnEffect,
    ReturnMessage,
    SetSessionStates,
    SettleAtSource,
    return_message,
)
from bridge.operations.migration.state_counts import told
from bridge.remote.administration import RemoteAdministration
from bridge.remote.errors import RemoteError, RemoteNotFound
from bridge.remote.namespace import RemoteNamespace

SHOWN_S: Final = 15.0
"""The least wait behind a hold: so long a bridge's peek may lack what a client of the library has
locked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnSides:
    """Both namespaces.

    Attributes:
        at_source, at_target: their administration.
        record: what says of each entity that it has come back.
        run: the name of the run, which holds the target's entities.
        target_name: the target's name, for the identity of what is sent.
        copied: what a run has copied, by the path in lower case.
    """

    source: RemoteNamespace
    target: RemoteNamespace
    at_source: RemoteAdministration
    at_target: RemoteAdministration
    record: CopyRecord
    run: str
    target_name: str
    copied: Mapping[str, LastCopied]


class RunningReturn:
    """Brings back one entity.

    Args:
        entity: the queue or topic, as the target has it.
        back: what is to be done.
        places: where its messages are.
        progress: is told of each message that both sides have shown.
    """

    def __init__(
        self,
        sides: ReturnSides,
        entity: model.Queue | model.Topic,
        back: EntityReturn,
        places: Sequence[CopyPlace],
        progress: Callable[[], Progress],
    ) -> None:
        self.entity = entity
        self.back = back
        self._sides = sides
        self._places = places
        self._progress = progress
        self._steps = back.steps()
        self._effect: ReturnEffect | None = next(self._steps)
        self._states = ReturnStates(sides.source, sides.target, sides.run)
        self._bringing: dict[int, Bringing] = {}
        self._held_s = 0.0

    async def go(self, asked: asyncio.Event, *, is_agreed: bool) -> bool:
        """Go on, at first until all is to be agreed to; whether it came so far before a signal.

        Raises:
            CopyStopped: a side does not let it go on.
            RemoteError: a namespace refuses for good, or does not answer.
        """
        while self._effect is not None:
            if isinstance(self._effect, AgreeToReturn) and not is_agreed:
                return True
            if asked.is_set():
                return False
            before = self.back.looked_at
            answer = await self._done(self._effect, asked)
            if asked.is_set() and isinstance(self._effect, AwaitLocks):
                return False
            try:
                self._effect = self._steps.send(answer)
            except StopIteration:
                self._effect = None
            self._progress().advance(self.back.looked_at - before)
        return True

    async def close(self) -> None:
        """Detach all links."""
        self._states.close()
        for each in self._bringing.values():
            with suppress(RemoteError):
                await each.close()
        for place in self._places:
            for side in (self._sides.source, self._sides.target):
                await side.management_of(place.path).close()

    async def close_target(self) -> None:
        """Disable the target's entity, its subscriptions behind it, and end its hold.

        Done again it changes nothing.
        """
        administration = self._sides.at_target
        for path in reversed(self._held):
            found = await administration.find(*path.split(SUBSCRIPTIONS))
            if found.properties.get("Status") != "Disabled":
                description = found.changed({"Status": "Disabled"})
                await administration.update(found.kind, description, *path.split(SUBSCRIPTIONS))
        await self.release()

    async def release(self) -> None:
        """End the hold of the target's entity."""
        for path in self._held:
            await self._sides.target.management_of(path).release(self._sides.run)

    @property
    def _held(self) -> list[str]:
        """The paths that are held: the queue or topic last, which tells that all are."""
        alive = [each.path for each in self._places if not each.is_dead]
        return [*alive[1:], alive[0]]

    async def _done(self, effect: ReturnEffect, asked: asyncio.Event) -> CopyAnswer:
        match effect:
            case HoldForReturn():
                return await self._hold()
            case PeekPage():
                return await self._page(effect)
            case ListSourceSessions(place):
                return await sessions(self._sides.source, self._places[place].path)
            case CountSource(place):
                return await self._count(place)
            case AwaitLocks():
                await self._await_locks(asked)
            case SetSessionStates():
                return await self._states.bring(self._sides.copied) or CopyDone()
            case CopyPause():
                await _pause(1.0, asked)
            case SettleAtSource(place):
                await settle(self._sides.source, self._places[place], effect, asked)
            case CancelAtSource(place, numbers):
                management = self._sides.source.management_of(self._places[place].path)
                for number in numbers:
                    with suppress(RemoteNotFound):  # what is due meanwhile shows in the next look
                        await management.cancel([number])
            case BringToSource(place, messages):
                return await self._bring(place, messages)
            case CloseTarget():
                await self._sides.record.write_returned(self._held)
                await self.close_target()
        return CopyDone()

    # -- the target

    async def _hold(self) -> CopyAnswer:
        """Read the states of the target's sessions while they can be accepted, then hold it."""
        for place in self._places:
            if place.has_sessions:
                await self._sides.target.management_of(place.path).release(self._sides.run)
                if (refused := await self._states.read(place.path)) is not None:
                    return refused
        for path in self._held:
            await self._sides.target.management_of(path).hold(self._sides.run)
        self._held_s = time.monotonic()
        return await self._states.check() or CopyDone()

    async def _await_locks(self, asked: asyncio.Event) -> None:
        """Wait until what was locked when the hold began is settled, or its lock has ended."""
        entity = self.entity
        each = (entity,) if isinstance(entity, model.Queue) else entity.subscriptions
        lock_ms = max((one.lock_duration_ms for one in each), default=0)
        until_s = self._held_s + max(lock_ms / 1_000 + 1.0, SHOWN_S)
        await _pause(until_s - time.monotonic(), asked)

    # -- both sides

    async def _page(self, wanted: PeekPage) -> list[ReturnMessage]:
        place = self._places[wanted.place]
        side = self._sides.source if wanted.side == "source" else self._sides.target
        found = await side.management_of(place.path).peek(
            wanted.from_number, wanted.count, wanted.session_id
        )
        return [return_message(each, is_dead=place.is_dead) for each in found]

    # -- the source

    async def _count(self, place: int) -> CopyCount:
        """Return the count, unless deferred dead letters may be in it."""
        path = self._places[place].path
        found = await self._sides.at_source.find(*path.split(SUBSCRIPTIONS))
        total = found.description.text_of("MessageCount")
        counted = told(found.counts, int(total) if total.isdecimal() else 0, None).counts
        if counted.get("deferred"):
            return CopyCount(None)
        return CopyCount(counted.get("active", 0) + counted.get("scheduled", 0))

    async def _bring(self, place: int, messages: Sequence[tuple[ReturnMessage, str]]) -> CopyAnswer:
        if place not in self._bringing:
            sides = self._sides
            self._bringing[place] = Bringing(sides.source, sides.target_name, self._places[place])
        return await self._bringing[place].send(messages)


async def _pause(time_s: float, asked: asyncio.Event) -> None:
    """Wait, no longer than until a signal comes."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asked.wait(), max(time_s, 0.0))
