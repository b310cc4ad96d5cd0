"""`busbridge migrate finish`: removes at the source what a run has brought to the target."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bridge.commands.errors import CommandError, WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.migration.connection import ConnectedSides
from bridge.commands.migration.options import add_sides
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.operations.count_text import be, counted, have

if TYPE_CHECKING:
    from bridge.commands.migration.emptying import SourceEmptying, SourceLook
    from bridge.commands.migration.lease import MigrationLease
    from bridge.model import entity as model
    from bridge.operations.migration.last_copied import LastCopied


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "finish",
        "remove at the source, for good, the messages and session states that a run has copied; it "
        "refuses, by number, when others have come since. Never give it after `migrate back`. "
        "Stopped, it is begun again by the same command",
        run=run,
        right="Manage on both namespaces",
        examples=(
            "busbridge migrate finish --from prod --to local",
            "busbridge migrate finish --from prod --to local orders --yes contoso.example --json",
        ),
    )
    add_sides(parser)
    parser.add_argument(
        "--yes", "-y", metavar="NAMESPACE", default="",
        help="do not ask: the name of the source's namespace, as the question has it; without a "
        "terminal it is needed",
    )  # fmt: skip


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """See that the source has nothing new, ask, and remove what it has."""
    from bridge.commands.migration.lease import MigrationLease

    async with ConnectedSides.connected(arguments) as sides:
        with output.interruption.deferred() as asked:
            await sides.check_target()
            async with MigrationLease(sides, output, asked, "finish") as lease:
                finish = _Finish(output, sides, lease)
                return await finish.run(arguments.entity, arguments.yes, asked)


class _Finish:
    """One run."""

    def __init__(self, output: Output, sides: ConnectedSides, lease: MigrationLease) -> None:
        from bridge.commands.migration.record import CopyRecord

        self._output = output
        self._sides = sides
        self._lease = lease
        self._source, self._target = sides.source, sides.target
        self._at_source, self._at_target = sides.at_source, sides.at_target
        self._here, self._there = sides.from_source, sides.to_target
        self._run = sides.run
        self._record = CopyRecord(self._at_target, self._there, self._run)

    async def run(self, patterns: Sequence[str], yes: str, asked: asyncio.Event) -> int:
        """Return the exit code."""
        from bridge.commands.migration.emptying import SourceEmptying

        output, name = self._output, self._source.address.namespace
        entities, copied = await self._meant(patterns)
        with output.progress(None, "looking at the source", in_lines=True) as progress:
            work = [
                SourceEmptying(self._here, each, copied[each.path.lower()], progress)
                for each in entities
            ]
            looks = [await each.look(asked, progress) for each in work]
            states = [
                text
                for each, found in zip(work, looks, strict=True)
                for text in await each.new_states(found, asked)
            ]
        if asked.is_set():
            output.say("Stopped. Nothing was removed.")
            return ExitCode.STOPPED
        self._check_new(looks, states)
        output.say_some("held", [text for each in looks for text in each.held])
        total = sum(sum(each.counts.values()) for each in looks)
        sessions = sum(len(each.sessions) for each in looks)
        output.confirm_by_name(
            f"{counted(total, 'message')} of {counted(len(entities), 'entity', 'entities')}, and "
            f"the states of {counted(sessions, 'session')}, are removed from {name} for good: "
            "active, scheduled and deferred ones, and dead letters. "
            f"{self._target.name} has got them.",
            name,
            yes,
        )
        await self._lease.check()  # who was asked may have taken long
        await self._check_again(patterns, entities, copied)
        left = []
        with output.progress(total, "removing", in_lines=True) as progress:
            for each in work:
                each.reports_to(progress)
                left.append(await each.empty(asked))
                if asked.is_set():
                    break
        return await self._end(work, left, copied, is_stopped=asked.is_set())

    async def _meant(
        self, patterns: Sequence[str]
    ) -> tuple[list[model.Entity], Mapping[str, LastCopied]]:
        """Return the source's entities that are meant, and what was copied of each.

        Raises:
            CommandError: a run has not come to its end, or the target has not got one of them.
        """
        from bridge.commands.migration.holding import holds
        from bridge.commands.migration.sides import SideReading, chosen
        from bridge.operations.migration.closed_source import refused_removal
        from bridge.operations.migration.copy_effects import CopyStopped
        from bridge.operations.migration.last_copied import not_copied

        output = self._output
        with output.progress(None, "reading definitions") as progress:
            source = SideReading(self._at_source, progress)
            side = await source.side()
            here = side.by_path()
            target = SideReading(self._at_target, progress)
            there = (await target.side()).by_path()
        self._sides.say_left_out(output, source.kinds, patterns)
        meant = chosen(source.kinds, patterns)
        if not meant:
            raise WrongInput(f"{self._source.name!r} has no such entity.")
        mark = f"busbridge-{self._run}-"
        if any(path.startswith(mark) for path in target.created):
            raise CommandError(
                f"A run from {self._source.name} to {self._target.name} has not come to its end: "
                "give the command of that run again. Nothing was removed."
            )
        recorded = {
            path: each for path, each in (await self._record.read()).items() if path in here
        }
        if told := not_copied(meant, recorded, target.created, source.created):
            output.say_some("not copied", told)
            raise CommandError(
                "Nothing was removed: name the entities that `busbridge migrate run` has copied, "
                "and that the target has as they were then."
            )
        sides = ((path, here[path]) for path in sorted(meant))
        closed = [(path, refused_removal(each, side.of(path))) for path, each in sides]
        if told := [f"{path}: {why}" for path, why in closed if why]:
            output.say_some("cannot be removed", told)
            raise CommandError("Nothing was removed.")
        if told := _come_back(meant, there):
            output.say_some("has come back", told)
            raise CommandError(
                "Nothing was removed: what the source has now is in use there, and the target's "
                "copies are not. If somebody else has disabled an entity at the target, enable it."
            )
        for path in sorted(meant):
            try:
                is_held = await holds(self._there, here[path].path, self._run)
            except CopyStopped as error:
                raise CommandError(f"{error} Nothing was removed.") from None
            if is_held:
                raise CommandError(
                    f"{path} is held at {self._target.name} still: give the command of its run "
                    "again. Nothing was removed."
                )
        return [here[path] for path in sorted(meant)], {
            path: copied for path, (copied, _) in recorded.items()
        }

    async def _check_again(
        self,
        patterns: Sequence[str],
        entities: Sequence[model.Entity],
        copied: Mapping[str, LastCopied],
    ) -> None:
        """See that all is as it was before the question: it may have been answered much later.

        Raises:
            CommandError: a run or a way back has begun or ended, or an entity has come or gone.
        """
        now, copied_now = await self._meant(patterns)
        if [each.path for each in now] != [each.path for each in entities] or copied_now != copied:
            raise CommandError(
                f"{self._source.name} or {self._target.name} has changed since the question was "
                "asked. Nothing was removed: give the same command again."
            )

    def _check_new(self, looks: Sequence[SourceLook], states: Sequence[str]) -> None:
        """See that no message and no state of a session has come since.

        Raises:
            CommandError: some have; they are named.
        """
        new = sum(look.new.count for look in looks)
        self._say_new(looks)
        self._output.say_some("has come since", states)
        if new:
            raise CommandError(
                f"{counted(new, 'message')} {have(new)} come to {self._source.name} behind the "
                f"copy, which {self._target.name} has not got. Nothing was removed: stop what "
                "sends there, and receive them or have a relay move them (docs/hybrid.md)."
            )
        if states:
            set_text = counted(len(states), "state of a session was", "states of sessions were")
            raise CommandError(
                f"{set_text} set at {self._source.name} behind the "
                f"copy, which {self._target.name} has not got. Nothing was removed: stop "
                "what receives there, and read or clear them (`busbridge session state`)."
            )

    def _say_new(self, looks: Sequence[SourceLook]) -> None:
        texts = [text for each in looks for text in each.new.texts]
        count = sum(each.new.count for each in looks)
        self._output.say_some("has come since", texts, count)

    async def _end(
        self,
        work: Sequence[SourceEmptying],
        left: Sequence[SourceLook],
        copied: Mapping[str, LastCopied],
        *,
        is_stopped: bool,
    ) -> int:
        """Write what was removed and what is left, and return the exit code."""
        from bridge.operations.migration.state_counts import COPIED_STATES

        output = self._output
        rows = [
            {
                "entity": each.entity.path,
                **{state: each.removed.get(state, 0) for state in COPIED_STATES},
                "session_states": each.states,
                "left": sum(look.counts.values()) + look.new.count,
            }
            for each, look in zip(work, left, strict=False)
        ]
        output.table(rows)
        total = sum(sum(each.removed.values()) for each in work)
        stays = [text for each in work for text in each.stays]
        stays += [
            f"{each.entity.path}: {counted(count, 'message')} {be(count)} left"
            for each, look in zip(work, left, strict=False)
            if (count := sum(look.counts.values()) + look.new.count)
        ]
        states = counted(sum(each.states for each in work), "state", "states")
        removed = f"{counted(total, 'message')} and {states} of sessions"
        if is_stopped:
            output.say(f"Stopped. Removed {removed}: give the same command to go on.")
            return ExitCode.STOPPED
        self._say_new(left)
        output.say_some("left", stays)
        output.say(f"Removed {removed} from {self._source.name}.")
        if stays:
            output.say("Stop what receives there, or wait until its locks end; then go on.")
            return ExitCode.DIFFERENCES
        if {each.entity.path.lower() for each in work} >= copied.keys():
            await self._record.remove()
        return ExitCode.DONE


def _come_back(meant: set[str], there: Mapping[str, model.Entity]) -> list[str]:
    """Return a sentence for each entity that is disabled at the target: so the way back leaves it.

    Args:
        meant: paths in lower case.
        there: the target's entities, by the path in lower case.
    """
    return [
        f"{path} is disabled at the target: `busbridge migrate back` ends so."
        for path in sorted(meant)
        if path in there and there[path].status.value == "Disabled"
    ]
