"""`busbridge migrate run`: copies a namespace's messages under their numbers, and starts it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from bridge.commands.clock import now_ms
from bridge.commands.errors import CommandError, WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.migration.connection import ConnectedSides, renumbering_name
from bridge.commands.migration.options import add_renumber, add_sides
from bridge.commands.output import Output, Progress
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.operations.count_text import counted

if TYPE_CHECKING:
    from bridge.commands.migration.lease import MigrationLease
    from bridge.model import entity as model
    from bridge.operations.migration.plan import MigrationPlan, MigrationSide

STILL_S: Final = 10.0
"""The time within which nothing may change at the source."""

DRAIN_S: Final = 2.0
"""Between two looks at what forwards."""

DRAINS_MAX: Final = 30
"""Looks at what forwards while none of it goes."""

RESERVE_MS: Final = 60_000
"""What is due so long behind the estimated end may still be copied."""

QUEUES: Final = "queues and topics"

STEPS_PER_MESSAGE: Final = 2
"""Progress is shown of each message that is copied, and of each that is verified."""


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "run",
        "copy entities with all their messages into a bridge, under the numbers that they have; "
        "stop all that sends and receives first. At its end what is scheduled is cancelled at the "
        "source, so it is no rehearsal. Killed, it is begun again by the same command",
        run=run,
        right="Manage on both namespaces",
        examples=(
            "busbridge migrate run --from prod --to local",
            "busbridge migrate run --from prod --to local 'orders*' events --yes --json",
        ),
    )
    add_sides(parser)
    add_renumber(
        parser,
        "give the messages numbers above those that the target has given; the old one is in the "
        "application property repl-sequence, and `busbridge migrate map` shows both",
    )
    parser.add_argument(
        "--give-up", action="store_true",
        help="with --renumber: end the holds of a run that cannot go on, and say how to remove "
        "its copies, which are beside the target's own messages",
    )  # fmt: skip
    parser.add_argument(
        "--still", type=float, default=STILL_S, metavar="SECONDS",
        help=f"for how long nothing may change at the source before it begins ({STILL_S:.0f})",
    )  # fmt: skip
    add_yes(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Copy, verify, cancel what is scheduled at the source, and end the holds."""
    if arguments.give_up and not arguments.renumber:
        raise WrongInput(
            "--give-up is for runs with --renumber: after any other delete the entities at the "
            "target."
        )
    from bridge.commands.migration.lease import MigrationLease

    async with ConnectedSides.connected(arguments) as sides:
        with output.interruption.deferred() as asked:
            await sides.check_target()
            async with MigrationLease(sides, output, asked, "run") as lease:
                return await _Migration(arguments, output, sides).run(lease, asked)


class _Migration:
    """One run."""

    def __init__(
        self, arguments: argparse.Namespace, output: Output, sides: ConnectedSides
    ) -> None:
        self._arguments = arguments
        self._output = output
        self._sides = sides
        self._source, self._target = sides.source, sides.target
        self._at_source, self._at_target = sides.at_source, sides.at_target
        self._renumbers: bool = arguments.renumber
        self._run = renumbering_name(sides.source) if arguments.renumber else sides.run

    async def run(self, lease: MigrationLease, asked: asyncio.Event) -> int:
        """Return the exit code."""
        from bridge.commands.migration.copies import EntityCopies
        from bridge.commands.migration.copying import CopySides
        from bridge.commands.migration.mark import VerifiedMark
        from bridge.commands.migration.record import CopyRecord
        from bridge.operations.migration import order
        from bridge.operations.migration.comparison import at_target
        from bridge.operations.migration.run_mark import mark_name

        here, meant = await self._read_source()
        units = [each for each in order.copied(here.namespace) if each.path.lower() in meant]
        mark = VerifiedMark(self._at_target, mark_name(self._run, self._arguments.entity), meant)
        found = await mark.find()
        there, created = await self._sides.read_target(self._output, here, meant)
        if self._arguments.give_up:
            return await self._give_up(units, meant, created, lease)
        due_after_ms, total = 0, None
        before, empty = here, frozenset[str]()
        if found is not None:
            mark.check(found, created, self._output)
            self._check_open(here, meant)
        else:
            made = self._plan(here, there, meant)
            self._output.confirm(
                f"{self._target.name} gets {counted(len(units), 'queue or topic', QUEUES)} of "
                f"{self._source.name} with {counted(made.time.messages, 'message')}. All that "
                "sends and receives is stopped?"
            )
            await lease.check()  # who was asked may have taken long
            if (still := await self._still(here, meant, asked)) is None:
                return self._stopped()
            before = still
            empty = await self._define(units, here, there, meant, created)
            due_after_ms = now_ms() + 1_000 * (made.time.least_s or 0) + RESERVE_MS
            total = made.time.messages * STEPS_PER_MESSAGE
        sides = CopySides(
            source=self._sides.from_source,
            target=self._sides.to_target,
            administration=self._at_source,
            run=self._run,
            at_target=there.of,
            held_empty=empty,
            was_copied=await self._was_copied(created),
            message_bytes_max=lambda unit: at_target(
                unit, there.by_path().get(unit.path.lower()), there.tier
            )[1],
        )
        recount = partial(self._recount, before, meant)
        record = CopyRecord(self._at_target, self._sides.to_target, self._sides.run)
        copies = EntityCopies(mark, record, sides, self._output, recount, self._renumbered_by)
        if not await copies.run(units, meant, due_after_ms, total, asked):
            return self._stopped()
        return ExitCode.DONE

    async def _give_up(
        self,
        units: Sequence[model.Queue | model.Topic],
        meant: set[str],
        created: Mapping[str, str],
        lease: MigrationLease,
    ) -> int:
        """End the holds.

        Args:
            created: when each entity of the target was made, by the path in lower case.

        Raises:
            CommandError: all of one is verified, so that the source may lack what was scheduled; or
                another run holds one.
        """
        from bridge.commands.migration.copying import places_of
        from bridge.commands.migration.giving_up import give_up
        from bridge.operations.migration.copy_effects import CopyStopped

        was_copied = await self._was_copied(created)
        if verified := [path for path in sorted(meant) if was_copied(path)]:
            raise CommandError(
                f"All is verified of {', '.join(verified)}, and what was scheduled may be at the "
                "target alone by now: nothing was changed. Where its run was killed, give that "
                "command without --give-up, to bring it to its end; name the others."
            )
        self._output.confirm(
            f"The holds at {self._target.name} end, with copies there that the source has, too. "
            "All that receives there is stopped?"
        )
        await lease.check()
        places = [places_of(unit, lambda path: path.lower() in meant, self._run) for unit in units]
        try:
            await give_up(
                self._sides.from_source,
                self._sides.to_target,
                self._run,
                places,
                self._target.name,
                self._output,
            )
        except CopyStopped as error:
            raise CommandError(str(error)) from None
        return ExitCode.DONE

    async def _was_copied(self, created: Mapping[str, str]) -> Callable[[str], bool]:
        """Return what tells whether a run has verified an entity, as the target has it now."""
        from bridge.commands.migration.record import CopyRecord
        from bridge.operations.migration.run_mark import made_ms

        record = CopyRecord(self._at_target, self._sides.to_target, self._sides.run)
        recorded = await record.read()

        def was_copied(path: str) -> bool:
            found = recorded.get(path.lower())
            made = made_ms(created.get(path.lower())) or 0
            return found is not None and made <= found[1]

        return was_copied

    @property
    def _renumbered_by(self) -> str:
        return self._run if self._renumbers else ""

    def _stopped(self) -> int:
        self._output.say("Stopped. What was copied stays held: give the same command to go on.")
        return ExitCode.STOPPED

    async def _read_source(self) -> tuple[MigrationSide, set[str]]:
        """Return the source, and the paths that are meant, in lower case."""
        here, meant, _ = await self._sides.read_source(
            self._output, self._arguments.entity, "is copied"
        )
        return here, meant

    def _check_open(self, here: MigrationSide, meant: set[str]) -> None:
        """See that the source's status lets a run come to its end; raises CommandError."""
        from bridge.operations.migration.closed_source import refused_copy

        sides = ((path, each) for path, each in here.by_path().items() if path in meant)
        refused = [(path, refused_copy(each, here.of(path))) for path, each in sides]
        if told := [f"{path}: {why}" for path, why in refused if why]:
            self._output.say_some("refused", told)
            raise CommandError("Nothing was changed.")

    def _plan(self, here: MigrationSide, there: MigrationSide, meant: set[str]) -> MigrationPlan:
        """Return the plan; what a killed run has copied is no refusal.

        Raises:
            CommandError: something stands against it.
        """
        from bridge.operations.migration import plan

        made = plan.make(here, there, meant, now_ms=now_ms(), renumbers=self._renumbers)
        refusals = [
            each
            for each in made.findings
            if each.level == "refusal"
            and not (each.subject == "messages" and there.of(each.entity).total)
        ]
        self._output.say_some("refused", [f"{each.entity}: {each.text}" for each in refusals])
        if refusals:
            raise CommandError("Nothing was changed: `busbridge migrate plan` shows what to mend.")
        return made

    async def _still(
        self, here: MigrationSide, meant: set[str], asked: asyncio.Event
    ) -> MigrationSide | None:
        """Return the source when all that forwards has forwarded, and nothing changes.

        `None`: a signal came before.

        Raises:
            CommandError: something changes, or what forwards does not go.
        """
        from bridge.operations.migration import source_watch

        left, looks = source_watch.undrained(here, meant), 0
        self._output.say_some("waiting", left)
        while left and not asked.is_set():
            await _pause(DRAIN_S, asked)
            here, _ = await self._read_source()
            before, left = left, source_watch.undrained(here, meant)
            looks = looks + 1 if left == before else 0
            if looks == DRAINS_MAX:
                self._output.say_some("waiting", left)
                raise CommandError("What forwards does not go: nothing was changed.")
        with self._output.progress(None, "watching the source"):
            await _pause(self._arguments.still, asked)
        if asked.is_set():
            return None
        after, meant_now = await self._read_source()
        changes = source_watch.others(meant, meant_now)
        changes += source_watch.changes(here, after, meant)
        if changes:
            self._output.say_some("source", changes)
            raise CommandError(
                f"Nothing was changed: stop what sends to and receives from {self._source.name}."
            )
        return after

    async def _recount(self, before: MigrationSide, meant: set[str]) -> set[str]:
        """Return the queues and topics whose counts have changed since, in lower case.

        Raises:
            CommandError: messages have come to what was verified long before the last entity was,
                or an entity has come or gone.
        """
        from bridge.commands.migration.sides import SideReading, chosen
        from bridge.operations.migration import source_watch

        # The bar of the copies is shown meanwhile.
        reading = SideReading(self._at_source, Progress(None))
        after = await reading.side()
        told = source_watch.others(meant, chosen(reading.kinds, self._arguments.entity))
        if told := told or source_watch.risen(before, after, meant):
            self._output.say_some("source", told)
            raise CommandError(
                f"{self._source.name} has changed meanwhile. What was copied stays held: stop what "
                "sends and makes entities there, and give the same command to go on."
            )
        return {
            path.partition("/subscriptions/")[0]
            for path in meant
            if source_watch.changes(before, after, {path})
        }

    async def _define(
        self,
        units: Sequence[model.Queue | model.Topic],
        here: MigrationSide,
        there: MigrationSide,
        meant: set[str],
        created: Mapping[str, str],
    ) -> frozenset[str]:
        """Hold what the target has, then make and change its entities.

        Return the queues and topics that had no messages when they were held for the first time.

        Args:
            created: when each entity of the target was made, by the path in lower case.

        Raises:
            CommandError: one lives at the target, with messages of its own.
        """
        from bridge.commands.migration.copying import places_of
        from bridge.commands.migration.defining import DefinitionCopy
        from bridge.commands.migration.holding import TargetHolding
        from bridge.operations.migration.copy_effects import CopyStopped
        from bridge.remote.errors import RemoteError
        from bridge.topology.definitions import entities

        was_copied = await self._was_copied(created)
        to_target, renumbers = self._sides.to_target, self._renumbers
        holding = TargetHolding(to_target, self._run, there, was_copied, renumbers=renumbers)
        part = [each for each in entities(here.namespace) if each.path.lower() in meant]
        try:
            for unit in units:
                await holding.begin(unit, places_of(unit, lambda path: path.lower() in meant))
            with self._output.progress(len(part), "making entities") as progress:
                defining = DefinitionCopy(self._at_source, self._at_target, here, there, progress)
                await defining.define(part)
        except CopyStopped as error:
            await holding.release()
            raise CommandError(str(error)) from None
        except RemoteError:
            await holding.release()
            raise
        return frozenset(holding.empty)


async def _pause(time_s: float, asked: asyncio.Event) -> None:
    """Wait, no longer than until a signal comes."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asked.wait(), time_s)
