"""The holds of a migration's run at its target."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from bridge.commands.errors import sentence_of
from bridge.commands.message_path import DEAD_LETTER
from bridge.model import entity as model
from bridge.operations.count_text import counted
from bridge.operations.migration.copy_effects import CopyPlace, CopyStopped
from bridge.operations.migration.plan import MigrationSide
from bridge.operations.migration.session_states import own_state
from bridge.operations.migration.state_counts import StateCounts
from bridge.remote.errors import RemoteError, RemoteRefused
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.sender import RemoteSender

NOT_HELD: Final = "com.microsoft:precondition-failed"
"""What the attach of an import link is refused with where no run holds the entity."""

HELD_BY_ANOTHER: Final = "com.microsoft:entity-disabled"
"""What it is refused with where another run does; its text names that."""


async def importing(target: RemoteNamespace, path: str, run: str) -> RemoteSender | None:
    """Return a sender that imports into an entity of the target; `None` where no run holds it.

    Raises:
        CopyStopped: another run holds it.
        RemoteError: the target refuses for another reason, or does not answer.
    """
    try:
        return await target.sender(path, import_run=run)
    except RemoteRefused as error:
        if error.condition == HELD_BY_ANOTHER:
            raise CopyStopped(f"{path}: {sentence_of(error)}") from None
        if error.condition != NOT_HELD:
            raise
        return None


async def holds(target: RemoteNamespace, path: str, run: str) -> bool:
    """Whether a run holds an entity of the target.

    Raises:
        CopyStopped, RemoteError: see `importing`.
    """
    sender = await importing(target, path, run)
    if sender is None:
        return False
    await sender.close()
    return True


async def check_free(
    places: Sequence[CopyPlace],
    at_target: Callable[[str], StateCounts],
    is_held: Callable[[], Awaitable[bool]],
    was_copied: Callable[[str], bool] = lambda path: False,
) -> None:
    """See that an entity of the target has no messages, or that the run holds it.

    Args:
        at_target: the messages of an entity at the target.
        is_held: asks whether the run holds it.
        was_copied: whether a run has come to its end with an entity, as the target has it now.

    Raises:
        CopyStopped: it lives, with messages of its own.
    """
    for place in places:
        path = place.path.removesuffix(DEAD_LETTER)
        found = at_target(path).total
        if not found or await is_held():
            continue
        what = f"{place.path}: the target has {counted(found, 'message')}, and no run holds it"
        if was_copied(path):
            raise CopyStopped(
                f"{what}: an earlier run has moved it, and has ended (`busbridge migrate verify` "
                "compares). Leave it out, and do not purge it: what was scheduled is there alone."
            )
        raise CopyStopped(
            f"{what}: they are its own. Receive or purge them first, leave it out, or "
            "give --renumber."
        )


def held_paths(places: Sequence[CopyPlace]) -> list[str]:
    """Return the paths that are held: the queue or topic last, which tells that all are."""
    alive = [each.path for each in places if not each.is_dead]
    return [*alive[1:], alive[0]]


class TargetHolding:
    """Holds what the target has, before its definitions are changed.

    Args:
        target: the namespace.
        run: the name of the run.
        there: the target, as it was read.
        was_copied: whether a run has come to its end with an entity, as the target has it now.
        renumbers: messages of the target's own stay.

    Attributes:
        empty: the queues and topics that were not held before, and have no messages, or none of
            this run's, in lower case.
    """

    def __init__(
        self,
        target: RemoteNamespace,
        run: str,
        there: MigrationSide,
        was_copied: Callable[[str], bool] = lambda path: False,
        *,
        renumbers: bool = False,
    ) -> None:
        self._target = target
        self._was_copied = was_copied
        self._renumbers = renumbers
        self._run = run
        self._there = there
        self._known = there.by_path()
        self._paths: list[str] = []
        self.empty: set[str] = set()

    async def begin(self, unit: model.Queue | model.Topic, places: Sequence[CopyPlace]) -> None:
        """Hold a queue or topic, with its subscriptions, as far as the target has them.

        Raises:
            CopyStopped: it lives, with messages of its own; or another run holds it.
            RemoteError: the target refuses, or does not answer.
        """
        is_held = partial(holds, self._target, unit.path, self._run)
        if not self._renumbers:
            await check_free(places, self._there.of, is_held, self._was_copied)
        if unit.path.lower() not in self._known:
            return
        await self._check_others(unit, places)
        if await is_held():
            return
        there = [each for each in places if self._is_there(each)]
        for place in there:
            if self._renumbers and self._was_copied(place.path.removesuffix(DEAD_LETTER)):
                raise CopyStopped(
                    f"{place.path}: an earlier run has ended there, and what it has copied may be "
                    "received by now: leave it out."
                )
            # A number that was used is refused; of a state nobody could tell that it is an old one.
            if place.has_sessions and self._was_copied(place.path):
                raise CopyStopped(
                    f"{place.path}: an earlier run has ended there, and the target has had its "
                    "states of sessions: leave it out. To copy it anew, delete it at the target."
                )
        for path in held_paths(there):
            self._paths.append(path)
            await self._target.management_of(path).hold(self._run)
        for place in there if not self._renumbers else ():
            if shown := await self._target.management_of(place.path).peek(1, 1):
                raise CopyStopped(
                    f"{place.path}: the target has messages of its own, such as "
                    f"{shown[0].sequence_number}: receive or purge them first."
                )
            if place.has_sessions:
                await self._check_states(place.path)
        self.empty.add(unit.path.lower())

    async def release(self) -> None:
        """End the holds that were begun; nothing was copied."""
        for path in self._paths:
            with suppress(RemoteError):
                await self._target.management_of(path).release(self._run)

    async def _check_states(self, path: str) -> None:
        """See that no session has a state: it would be one of the target's own."""
        management = self._target.management_of(path)
        for session_id in await management.session_state_digests(self._run, 0, 1):
            raise own_state(path, session_id)

    def _is_there(self, place: CopyPlace) -> bool:
        return place.path.removesuffix(DEAD_LETTER).lower() in self._known

    async def _check_others(
        self, unit: model.Queue | model.Topic, places: Sequence[CopyPlace]
    ) -> None:
        """See that this run holds no subscription that is no part of the migration any more."""
        there = self._known[unit.path.lower()]
        meant = {each.path.lower() for each in places}
        for each in there.subscriptions if isinstance(there, model.Topic) else ():
            if each.path.lower() not in meant and await holds(self._target, each.path, self._run):
                raise CopyStopped(
                    f"{each.path}: an earlier run holds it at the target, and the source has it no "
                    "more: delete it at the target."
                )
