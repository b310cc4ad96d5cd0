"""The copies of a migration's entities, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from bridge.commands.errors import CommandError
from bridge.commands.message_path import DEAD_LETTER
from bridge.commands.migration.arrivals import arrived_messages
from bridge.commands.migration.copying import CopySides, RunningCopy, places_of
from bridge.commands.migration.mark import VerifiedMark
from bridge.commands.migration.meeting import TOGETHER, CopyMeeting, together
from bridge.commands.migration.record import CopyRecord
from bridge.commands.output import Output
from bridge.model import entity as model
from bridge.operations.count_text import be, counted
from bridge.operations.migration.copy_effects import (
    AwaitCancelled,
    AwaitMark,
    AwaitOthers,
    CopyAnswer,
    CopyDone,
    CopyEffect,
    CopyPlace,
    CopyStopped,
    SourceRecounted,
)
from bridge.operations.migration.entity_copy import EntityCopy
from bridge.operations.migration.last_copied import LastCopied, last_copied

KEPT_BYTES: Final = 64 << 20
"""Memory for the messages that are kept from the first reading to the copy, of all entities."""


class EntityCopies:
    """The copies of all entities, side by side; none is received before all are verified.

    Args:
        mark: what the target gets when all are.
        record: what says of each entity how far it was copied.
        sides: both namespaces.
        recount: counts the source once more when all are verified, and returns the paths of queues
            and topics with other counts than before, in lower case.
        renumbered_by: the run, where it gives new numbers; "": they keep theirs.
    """

    def __init__(
        self,
        mark: VerifiedMark,
        record: CopyRecord,
        sides: CopySides,
        output: Output,
        recount: Callable[[], Awaitable[set[str]]],
        renumbered_by: str = "",
    ) -> None:
        self._sides = sides
        self._mark = mark
        self._record = record
        self._output = output
        self._recount = recount
        self._renumbered_by = renumbered_by
        self._changed: set[str] = set()
        self._copied_now: Sequence[LastCopied] = ()
        self._late: list[str] = []
        self._gate = asyncio.Semaphore(TOGETHER)

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
        is_verified = total is None
        kept_bytes = KEPT_BYTES // max(1, min(TOGETHER, len(units)))
        copies: list[RunningCopy] = []
        every_place: list[CopyPlace] = []
        meetings: dict[type[CopyEffect], CopyMeeting] = {
            effect: CopyMeeting(len(units), self._gate, asked, then)
            for effect, then in (
                (AwaitOthers, self._note_changed),
                (AwaitMark, partial(self._note_end, copies)),
                (AwaitCancelled, partial(self._check_due, every_place)),
            )
        }
        with self._output.progress(
            total, "copying and verifying messages", in_lines=True
        ) as progress:
            for unit in units:
                places = places_of(unit, lambda path: path.lower() in meant, self._renumbered_by)
                every_place += places
                copy = EntityCopy(
                    places,
                    due_after_ms=due_after_ms,
                    kept_bytes=kept_bytes,
                    is_verified=is_verified,
                )
                copies.append(
                    RunningCopy(
                        self._sides,
                        unit,
                        copy,
                        places,
                        partial(self._with_others, meetings, unit.path),
                        progress,
                    )
                )
            try:
                ended = await together([partial(self._copied, each, asked) for each in copies])
            except CopyStopped as error:
                raise CommandError(str(error)) from None
        if not all(ended):
            return False
        await self._mark.remove()
        self._write(copies)
        return True

    async def _copied(self, copy: RunningCopy, asked: asyncio.Event) -> bool:
        async with self._gate:
            return await copy.run(asked)

    async def _note_changed(self) -> None:
        self._changed = await self._recount()

    async def _note_end(self, copies: Sequence[RunningCopy]) -> None:
        """Say at the target what was copied, then that all of it is verified."""
        numbers = (each for copy in copies for each in copy.copy.numbers())
        copied = ((place.path.removesuffix(DEAD_LETTER), found) for place, found in numbers)
        states = (each for copy in copies for each in copy.copy.state_digests())
        self._copied_now = last_copied(copied, states, is_renumbered=bool(self._renumbered_by))
        await self._record.write(self._copied_now)
        await self._mark.make()

    async def _check_due(self, places: Sequence[CopyPlace]) -> None:
        """See that nothing that is scheduled at the target was due at the source meanwhile.

        Raises:
            CopyStopped: the source has some of it.
        """
        copied = {each.path.lower(): each for each in self._copied_now}
        if not copied:  # an earlier run has said it
            copied = {path: each for path, (each, _) in (await self._record.read()).items()}
        arrived = await arrived_messages(self._sides.source, self._sides.target, places, copied)
        self._late = arrived.others
        if twice := arrived.twice:
            self._output.say_some("is at both sides", twice)
            raise CopyStopped(
                f"{counted(len(twice), 'message')} of the source would be handled twice. The "
                "target stays held: remove them at the source (`busbridge purge`, by "
                "sys.SequenceNumber), and give the same command to go on."
            )

    async def _with_others(
        self,
        meetings: Mapping[type[CopyEffect], CopyMeeting],
        path: str,
        effect: CopyEffect,
    ) -> CopyAnswer | None:
        """Wait until all entities are as far as one of them; `None`: a signal came before."""
        if not await meetings[type(effect)].wait():
            return None
        if isinstance(effect, AwaitOthers):
            return SourceRecounted(path.lower() in self._changed)
        return CopyDone()

    def _write(self, copies: Sequence[RunningCopy]) -> None:
        output = self._output
        rows = [
            {
                "entity": each.entity.path,
                "messages": each.copy.messages,
                "verified": each.copy.verified,
                "session_states": each.copy.session_states,
                "cancelled": each.copy.cancelled,
            }
            for each in copies
        ]
        output.table(rows)
        notes = [note for each in copies for note in each.notes]
        output.say_some("to be known", [*notes, *self._late])
        total = sum(each.copy.messages for each in copies)
        under = "numbers above its own" if self._renumbered_by else "their numbers"
        output.say(
            f"{counted(total, 'message')} {be(total)} at the target under {under}, which may be "
            "received now. Start what receives, then what sends."
        )
