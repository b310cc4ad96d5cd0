"""Removes from the source of a migration what was copied to its target, and nothing else."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from bridge.commands.clock import now_ms
from bridge.commands.errors import sentence_of
from bridge.commands.message_path import DEAD_LETTER
from bridge.commands.migration.peeking import SESSIONS_PAGE, pages, places
from bridge.commands.migration.state_copying import state_of as state_in
from bridge.commands.output import TEXTS_SAID, Progress
from bridge.model import entity as model
from bridge.model.session_id import FoldedId, fold
from bridge.operations.migration.last_copied import LastCopied
from bridge.operations.migration.session_states import TOGETHER
from bridge.operations.migration.state_counts import CopiedState, state_of
from bridge.relay.running.session_lock import CANNOT_BE_LOCKED
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteError, RemoteLockLost, RemoteNotFound
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Complete, Release
from bridge.remote.receiver import RemoteReceiver
from bridge.remote.session_receiver import RemoteSessionReceiver

ROUND: Final = 250
"""Messages that are received, cancelled or asked for by number at once, at most."""

WAIT_S: Final = 5.0
"""For how long no message must come until there are no more."""

ACCEPT_S: Final = 20.0
"""How long a namespace may take to give a session."""

RENEW_MS: Final = 20_000
"""A session's lock that ends sooner is renewed."""

PASSES: Final = 5
"""Looks at an entity, each followed by a removal: a peek across sessions may not show all."""


@dataclass(slots=True)
class NewMessages:
    """Messages that were not copied: counted, the first ones named in words, too."""

    count: int = 0
    texts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Count a message."""
        self.count += 1
        if self.count <= TEXTS_SAID:
            self.texts.append(text)


@dataclass(slots=True)
class SourceLook:
    """What an entity of the source has now.

    Attributes:
        counts: its messages that were copied, by state.
        new: those that were not.
        scheduled, deferred: their numbers, by place; those of deferred ones by session, too.
        received: how many of the copied ones receivers get, by place, and by session likewise.
        sessions: its sessions with messages or a state.
        held: those that somebody holds, in words.
    """

    counts: Counter[CopiedState] = field(default_factory=Counter)
    new: NewMessages = field(default_factory=NewMessages)
    scheduled: dict[str, list[int]] = field(default_factory=dict)
    deferred: dict[tuple[str, FoldedId | None], list[int]] = field(default_factory=dict)
    received: Counter[tuple[str, FoldedId | None]] = field(default_factory=Counter)
    sessions: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


class SourceEmptying:
    """Empties a queue, a subscription, or a topic of its scheduled messages.

    Args:
        namespace: the source.
        entity: what is emptied.
        copied: what of it was copied: nothing else is removed.
        progress: is told of each message that is removed.

    Attributes:
        removed: the messages that were, by state; those of a receiver count as active, or dead.
        states: how many states of sessions were.
        stays: what could not be removed, in sentences.
    """

    def __init__(
        self,
        namespace: RemoteNamespace,
        entity: model.Entity,
        copied: LastCopied,
        progress: Progress,
    ) -> None:
        self.entity = entity
        self._namespace = namespace
        self._copied = copied
        self._progress = progress
        self._is_topic = isinstance(entity, model.Topic)
        self._has_sessions = not isinstance(entity, model.Topic) and entity.requires_session
        self.removed: Counter[CopiedState] = Counter()
        self.states = 0
        self.stays: list[str] = []

    def reports_to(self, progress: Progress) -> None:
        """Tell another progress of what is removed from now on."""
        self._progress = progress

    async def look(self, asked: asyncio.Event, progress: Progress | None = None) -> SourceLook:
        """Return what it has, as far as it was read when a signal comes; raises RemoteError.

        Args:
            progress: is told of each message that was looked at.
        """
        found = SourceLook()
        for path, is_dead in places(self.entity.path, is_topic=self._is_topic):
            management = self._namespace.management_of(path)
            async for page in pages(management, asked):
                if progress is not None:
                    progress.advance(len(page))
                for each in page:
                    number, state = int(each.sequence_number or 0), state_of(each, is_dead=is_dead)
                    if not self._copied.has(number):
                        found.new.add(f"{path}: message {number} ({state.replace('_', '-')})")
                        continue
                    found.counts[state] += 1
                    in_session = self._has_sessions and not is_dead
                    folded = fold(each.session_id or "") if in_session else None
                    if state == "scheduled":
                        found.scheduled.setdefault(path, []).append(number)
                    elif each.state == "deferred":
                        found.deferred.setdefault((path, folded), []).append(number)
                    else:
                        found.received[path, folded] += 1
            await management.close()
        if self._has_sessions:
            found.sessions = await self._sessions(asked)
        return found

    async def _sessions(self, asked: asyncio.Event) -> list[str]:
        management = self._namespace.management_of(self.entity.path)
        found: list[str] = []
        while not asked.is_set():
            page = await management.message_sessions(len(found), SESSIONS_PAGE)
            if not page:
                break
            found += page
        return found

    async def new_states(self, found: SourceLook, asked: asyncio.Event) -> list[str]:
        """Return which sessions have a state that was not copied, in words; raises RemoteError.

        Each session is locked while its state is read. One that somebody holds is noted as held;
        `empty` compares once more.
        """
        told = []
        for at in range(0, len(found.sessions), TOGETHER):
            if asked.is_set():
                break
            some = found.sessions[at : at + TOGETHER]
            told += await asyncio.gather(*[self._new_state(each, found) for each in some])
        return [each for each in told if each]

    async def _new_state(self, session_id: str, found: SourceLook) -> str:
        try:
            state = await state_in(self._namespace, self.entity.path, session_id)
        except RemoteError as error:
            if error.condition != CANNOT_BE_LOCKED:
                raise
            found.held.append(f"{self.entity.path}: session {session_id!r}: {sentence_of(error)}")
            return ""
        if state is None or self._copied.has_state(session_id, state):
            return ""
        return self._other_state(session_id)

    def _other_state(self, session_id: str) -> str:
        return f"{self.entity.path}: session {session_id!r}: its state was set behind the copy"

    async def empty(self, asked: asyncio.Event) -> SourceLook:
        """Remove what was copied, and return what is left, or what was when a signal came.

        Raises:
            RemoteError: the source refuses, or does not answer.
        """
        left = await self.look(asked)
        for _ in range(PASSES):
            if asked.is_set() or not (left.counts or left.sessions):
                break
            before = sum(self.removed.values()) + self.states
            self.stays = []
            await self._remove(left, asked)
            if asked.is_set():
                break
            left = await self.look(asked)
            if before == sum(self.removed.values()) + self.states:
                break
        return left

    async def _remove(self, found: SourceLook, asked: asyncio.Event) -> None:
        for path, numbers in found.scheduled.items():
            await self._cancel(path, numbers, asked)
        for at in range(0, len(found.sessions), TOGETHER):
            if asked.is_set():
                return
            await self._remove_sessions(found.sessions[at : at + TOGETHER], found, asked)
        for (path, name), count in sorted(found.received.items(), key=lambda each: each[0][0]):
            if name is None and not asked.is_set():
                receiver = await self._namespace.receiver(path)
                await self._receive(receiver, path, count, asked)
        for (path, name), numbers in found.deferred.items():
            if name is None:
                await self._remove_deferred(path, numbers, None, asked)

    async def _cancel(self, path: str, numbers: Sequence[int], asked: asyncio.Event) -> None:
        management = self._namespace.management_of(path)
        for number in numbers:
            if asked.is_set():
                return
            with suppress(RemoteNotFound):  # it was due meanwhile, and has a new number
                await management.cancel([number])
                self._note("scheduled", 1)

    async def _remove_sessions(
        self, session_ids: Sequence[str], found: SourceLook, asked: asyncio.Event
    ) -> None:
        """Remove what sessions have, side by side; the first failure is raised when all ended."""
        work = [self._remove_session(each, found, asked) for each in session_ids]
        for error in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    async def _remove_session(
        self, session_id: str, found: SourceLook, asked: asyncio.Event
    ) -> None:
        """Remove what a session has: its messages, then its state."""
        path = self.entity.path
        try:
            session = await self._namespace.session_receiver(path, session_id, max_wait_s=ACCEPT_S)
        except RemoteError as error:
            if error.condition != CANNOT_BE_LOCKED:
                raise
            self.stays.append(f"{path}: session {session_id!r}: {sentence_of(error)}")
            return
        try:
            if numbers := found.deferred.get((path, fold(session_id))):
                await self._remove_deferred(path, numbers, session_id, asked)
            if count := found.received[path, fold(session_id)]:
                await self._receive(session, path, count, asked)
            state = None if asked.is_set() else await session.state()
            if state and not self._copied.has_state(session_id, state):
                self.stays.append(self._other_state(session_id))
            elif state is not None:
                await session.set_state(None)
                self.states += 1
        finally:
            with suppress(RemoteError):
                await session.close()

    async def _receive(
        self, receiver: RemoteReceiver, path: str, count: int, asked: asyncio.Event
    ) -> None:
        """Receive until so many are removed, or no more come.

        What was not copied is kept so long, and goes back then.
        """
        state: CopiedState = "dead_letter" if path.endswith(DEAD_LETTER) else "active"
        session = receiver if isinstance(receiver, RemoteSessionReceiver) else None
        others: list[RemoteDelivery] = []
        try:
            while not asked.is_set():
                if session is not None and session.locked_until_ms < now_ms() + RENEW_MS:
                    await session.renew()
                got = await receiver.receive(ROUND, WAIT_S)
                copied = [each for each in got if self._is_copied(each)]
                others += [each for each in got if not self._is_copied(each)]
                if copied:
                    with suppress(RemoteLockLost):  # it comes again
                        await receiver.settle_all(copied, Complete())
                        self._note(state, len(copied))
                        count -= len(copied)
                if count <= 0 or len(others) >= ROUND or not got:
                    return
        finally:
            with suppress(RemoteError):  # their locks end
                await receiver.settle_all(others, Release())
            if session is None:
                with suppress(RemoteError):
                    await receiver.close()

    def _is_copied(self, delivery: RemoteDelivery) -> bool:
        return self._copied.has(int(delivery.message.sequence_number or 0))

    async def _remove_deferred(
        self, path: str, numbers: Sequence[int], session_id: str | None, asked: asyncio.Event
    ) -> None:
        management = self._namespace.management_of(path)
        state: CopiedState = "deferred_dead_letter" if path.endswith(DEAD_LETTER) else "deferred"
        for at in range(0, len(numbers), ROUND):
            if asked.is_set():
                return
            some = numbers[at : at + ROUND]
            try:
                await management.receive_deferred(some, "receive-and-delete", session_id)
                self._note(state, len(some))
            except RemoteNotFound:  # somebody has taken one of them
                for number in some:
                    with suppress(RemoteNotFound):
                        await management.receive_deferred(
                            [number], "receive-and-delete", session_id
                        )
                        self._note(state, 1)

    def _note(self, state: CopiedState, count: int) -> None:
        self.removed[state] += count
        self._progress.advance(count)
