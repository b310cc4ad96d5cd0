"""Carries out what the copies of entities want done, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.commands.cancelling import Cancelled, cancel
from bridge.commands.errors import sentence_of
from bridge.commands.message_path import DEAD_LETTER
from bridge.commands.migration.holding import check_free, held_paths, importing
from bridge.commands.migration.peeking import sessions_of
from bridge.commands.migration.state_copying import source_states, store_states, target_states
from bridge.commands.output import Progress
from bridge.model import entity as model
from bridge.operations.migration.copy_effects import (
    AwaitCancelled,
    AwaitMark,
    AwaitOthers,
    CancelAtSource,
    CopyAnswer,
    CopyCount,
    CopyDone,
    CopyEffect,
    CopyPause,
    CopyPlace,
    CopyRefused,
    CopyStopped,
    CopyUnanswered,
    CountSource,
    HoldTarget,
    ImportBatch,
    LastNumbers,
    ListSourceSessions,
    ListTargetStates,
    PeekedMessage,
    PeekPage,
    ReadLastNumbers,
    ReadSourceStates,
    ReleaseTarget,
    StoreTargetStates,
    TargetHeld,
    peeked,
)
from bridge.operations.migration.entity_copy import EntityCopy
from bridge.operations.migration.renumbered_message import (
    check_renumberable,
    check_size,
    peeked_copy,
)
from bridge.operations.migration.state_counts import StateCounts, told
from bridge.relay.plan.encoded_map import EncodedMap
from bridge.remote.administration import RemoteAdministration
from bridge.remote.errors import (
    RemoteError,
    RemoteNotFound,
    RemoteTimeout,
)
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.sender import RemoteSender
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.primitives import encode_string, encode_symbol
from bridge.wire.mapping.imported import DEAD_LETTER as IS_DEAD
from bridge.wire.mapping.imported import SUBSCRIPTION
from bridge.wire.mapping.sections import MESSAGE_ANNOTATIONS

IMPORT_S: Final = 120.0
"""How long the target may take for one transfer."""

UNANSWERED_MAX: Final = 10
"""Transfers in a row without an answer."""

NOT_ABOVE: Final = "com.microsoft:argument-out-of-range"
"""What a number is refused with that is not above the target's last one."""

RENUMBER: Final = "A target that has given numbers itself takes copies under new ones: --renumber."

MOVED: Final = (
    "An earlier run has moved this entity, and has ended: what it has copied may be received by "
    "now, so leave it out; --renumber would bring it twice. What the source has behind that run a "
    "relay moves, or `busbridge export` and `busbridge import`."
)

_OF_ONE_PEEK: Final = (b"x-opt-locked-until", b"x-opt-lock-token")
_IS_DEAD: Final = {IS_DEAD.encode(): writing.encode(True)}


def places_of(
    entity: model.Queue | model.Topic, chosen: Callable[[str], bool], renumbered_by: str = ""
) -> list[CopyPlace]:
    """Return where the messages of a queue, or of a topic's subscriptions, are.

    Args:
        chosen: whether a path is part of the migration.
        renumbered_by: the run that gives new numbers; "": they keep theirs.
    """
    own = CopyPlace(path=entity.path, renumbered_by=renumbered_by)
    if isinstance(entity, model.Queue):
        return [
            replace(own, has_sessions=entity.requires_session),
            replace(own, path=entity.path + DEAD_LETTER, is_dead=True),
        ]
    places = [own]
    for series, each in enumerate(entity.subscriptions, start=1):
        if chosen(each.path):
            alive = replace(
                own,
                path=each.path,
                series=series,
                is_ordered_by_topic=True,
                has_sessions=each.requires_session,
            )
            dead = replace(alive, path=each.path + DEAD_LETTER, is_dead=True, has_sessions=False)
            places += [alive, dead]
    return places


async def _not_held() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySides:
    """Both namespaces.

    Attributes:
        run: the name of the run, which holds the target's entities.
        at_target: the messages of an entity at the target, when it was read.
        held_empty: the queues and topics of the target that this run has held for the first time,
            and seen to have no messages, in lower case.
        was_copied: whether a run has come to its end with an entity, as the target has it now.
        message_bytes_max: what the largest message of a queue or topic has at the target.
    """

    source: RemoteNamespace
    target: RemoteNamespace
    administration: RemoteAdministration
    run: str
    at_target: Callable[[str], StateCounts]
    held_empty: frozenset[str] = frozenset()
    was_copied: Callable[[str], bool] = lambda path: False
    message_bytes_max: Callable[[model.Queue | model.Topic], int] | None = None


class RunningCopy:
    """Copies one entity.

    Args:
        entity: the queue or topic.
        copy: what is to be done.
        places: where its messages are.
        others: waits for the copies of the other entities, and returns the answer to an effect
            that asks for that; `None`: a signal came before.
        progress: is told of each message that is copied, and of each that is verified.

    Attributes:
        notes: what is to be known, in sentences.
    """

    def __init__(
        self,
        sides: CopySides,
        entity: model.Queue | model.Topic,
        copy: EntityCopy,
        places: Sequence[CopyPlace],
        others: Callable[[CopyEffect], Awaitable[CopyAnswer | None]],
        progress: Progress,
    ) -> None:
        self.entity = entity
        self.copy = copy
        self.notes: list[str] = []
        bound = sides.message_bytes_max
        self._most_bytes = None if bound is None else bound(entity)
        self._sides = sides
        self._places = places
        self._others = others
        self._progress = progress
        self._sender: RemoteSender | None = None
        self._unanswered = 0

    async def run(self, asked: asyncio.Event) -> bool:
        """Return whether it came to its end: a signal ends it before.

        Raises:
            CopyStopped: the source, or the target, does not let it go on.
            RemoteError: a namespace refuses, or does not answer.
        """
        steps = self.copy.steps()
        try:
            effect = next(steps)
            while not asked.is_set():
                before = self.copy.copied + self.copy.verified
                if isinstance(effect, AwaitOthers | AwaitMark | AwaitCancelled):
                    answer = await self._others(effect)
                    if answer is None:
                        return False
                else:
                    try:
                        answer = await self._done(effect)
                    except CopyStopped as stopped:  # the hold ends where nothing was copied
                        effect = steps.throw(stopped)
                        continue
                effect = steps.send(answer)
                self._progress.advance(self.copy.copied + self.copy.verified - before)
        except StopIteration:
            return True
        finally:
            await self._close()
        return False

    async def _close(self) -> None:
        if self._sender is not None:
            await self._sender.close()
        for place in self._places:
            for side in (self._sides.source, self._sides.target):
                await side.management_of(place.path).close()

    async def _done(self, effect: CopyEffect) -> CopyAnswer:
        match effect:
            case HoldTarget():
                return await self._hold()
            case PeekPage():
                return await self._page(effect)
            case ListSourceSessions(place):
                return await self._sessions(place)
            case CountSource(place):
                return await self._count(place)
            case ReadLastNumbers(place):
                management = self._sides.target.management_of(self._places[place].path)
                return LastNumbers(tuple(await management.last_numbers(self._sides.run)))
            case ImportBatch(messages):
                return await self._import(messages)
            case ReadSourceStates(place, session_ids):
                return await source_states(
                    self._sides.source, self._places[place].path, session_ids
                )
            case ListTargetStates(place):
                return await target_states(
                    self._sides.target, self._places[place].path, self._sides.run
                )
            case StoreTargetStates(place, states):
                return await store_states(
                    self._sides.target, self._places[place].path, self._sides.run, states
                )
            case CopyPause():
                await asyncio.sleep(1.0)
            case CancelAtSource(place, numbers):
                await self._cancel(self._places[place].path, numbers)
            case ReleaseTarget():
                for path in self._held:
                    await self._sides.target.management_of(path).release(self._sides.run)
        return CopyDone()

    @property
    def _is_renumbering(self) -> bool:
        return bool(self._places[0].renumbered_by)

    @property
    def _held(self) -> list[str]:
        """The paths that are held: the queue or topic last, which tells that all are."""
        return held_paths(self._places)

    async def _hold(self) -> TargetHeld:
        is_new = not await self._is_attached()
        if is_new and not self._is_renumbering:
            await check_free(self._places, self._sides.at_target, _not_held)
        for path in self._held:  # a subscription may be new since the run was begun first
            await self._sides.target.management_of(path).hold(self._sides.run)
        if is_new and not await self._is_attached():
            raise CopyStopped(f"{self.entity.path}: the target is not held any more.")
        was_empty = self.entity.path.lower() in self._sides.held_empty
        return TargetHeld(is_new, self._batch_bytes, was_empty)

    @property
    def _batch_bytes(self) -> int:
        return self._sender.max_batch_size if self._sender is not None else 0

    async def _is_attached(self) -> bool:
        """Attach the sender; whether this run holds the target's entity."""
        sides = self._sides
        self._sender = await importing(sides.target, self.entity.path, sides.run)
        return self._sender is not None

    async def _page(self, wanted: PeekPage) -> list[PeekedMessage]:
        place = self._places[wanted.place]
        side = self._sides.source if wanted.side == "source" else self._sides.target
        found = await side.management_of(place.path).peek(
            wanted.from_number, wanted.count, wanted.session_id
        )
        is_dead, is_noted = place.is_dead, wanted.is_noted
        if place.renumbered_by and wanted.side == "target":
            return [peeked_copy(each, place, is_noted=is_noted) for each in found]
        if place.renumbered_by:
            for each in found:
                check_renumberable(place, each)
                if self._most_bytes is not None:
                    check_size(place, each, self._most_bytes)
        return [peeked(each, is_dead=is_dead, is_noted=is_noted) for each in found]

    async def _sessions(self, place: int) -> list[str]:
        return await sessions_of(self._sides.source.management_of(self._places[place].path))

    async def _count(self, place: int) -> CopyCount:
        """Return the count; where deferred messages may be in it, or not, that of the whole."""
        at = self._places[place]
        names = at.path.removesuffix(DEAD_LETTER).split("/Subscriptions/")
        found = await self._sides.administration.find(*names)
        total = found.description.text_of("MessageCount")
        counted = told(found.counts, int(total) if total.isdecimal() else 0, None).counts
        if counted.get("deferred"):
            return CopyCount(None, None if at.is_dead else sum(counted.values()))
        if at.is_dead:
            return CopyCount(counted.get("dead_letter", 0))
        if isinstance(self.entity, model.Topic) and not at.is_ordered_by_topic:
            return CopyCount(counted.get("scheduled", 0))
        return CopyCount(counted.get("active", 0) + counted.get("scheduled", 0))

    async def _import(
        self, messages: Sequence[tuple[int, PeekedMessage]]
    ) -> CopyDone | CopyUnanswered | CopyRefused:
        assert self._sender is not None
        batch = [imported(self._places[place], each.message) for place, each in messages]
        try:
            await self._sender.send(batch, within_s=IMPORT_S)
        except RemoteError as error:
            if not error.in_doubt and not isinstance(error, RemoteTimeout):
                if not error.retryable:
                    return CopyRefused(self._refusal(error))
                raise
            self._unanswered += 1
            if self._unanswered == UNANSWERED_MAX:
                raise
            await self._attach_again()
            return CopyUnanswered()
        self._unanswered = 0
        return CopyDone()

    def _refusal(self, error: RemoteError) -> str:
        """Return why the target refuses a transfer, with what helps."""
        if error.condition != NOT_ABOVE or self._is_renumbering:
            return sentence_of(error)
        was_copied = any(map(self._sides.was_copied, self._held))
        return f"{sentence_of(error)} {MOVED if was_copied else RENUMBER}"

    async def _attach_again(self) -> None:
        """Attach another link: behind a transfer without an answer a link takes none."""
        assert self._sender is not None
        await self._sender.close()
        await asyncio.sleep(1.0)
        if not await self._is_attached():
            raise CopyStopped(f"{self.entity.path}: the target is not held any more.")

    async def _cancel(self, path: str, numbers: Sequence[int]) -> None:
        management = self._sides.source.management_of(path)
        try:
            await management.cancel(numbers)
        except RemoteNotFound:
            pass
        except RemoteError as error:
            if not error.in_doubt:
                raise
        else:
            return
        for number in numbers:
            if await cancel(management, number, None) is Cancelled.NOT_SCHEDULED:
                self.notes.append(
                    f"{path}: message {number} is not scheduled at the source any more."
                )


def imported(place: CopyPlace, message: RemoteMessage) -> RemoteMessage:
    """Return what is sent for a message of a place; the same for the same message.

    Raises:
        MappingError: its annotations are no map.
    """
    put = dict(_IS_DEAD) if place.is_dead else {}
    if place.is_ordered_by_topic:
        path = place.path.removesuffix(DEAD_LETTER)
        name = path.partition("/Subscriptions/")[2]
        put[SUBSCRIPTION.encode()] = encode_string(name.encode())
    annotations = message.annotations
    if not put and not any(each in annotations for each in _OF_ONE_PEEK):
        return message
    changed = EncodedMap(annotations, MESSAGE_ANNOTATIONS).changed(
        drop=_OF_ONE_PEEK, put=put, as_key=encode_symbol
    )
    return replace(message, annotations=changed)
