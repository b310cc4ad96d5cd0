"""`busbridge migrate back`: the source is made equal to what the target has done, and goes on."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from bridge.commands.errors import CommandError, WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.migrate_run import STILL_S
from bridge.commands.migration.connection import ConnectedSides, back_name
from bridge.commands.migration.options import add_sides
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes

if TYPE_CHECKING:
    from bridge.commands.migration.lease import MigrationLease
    from bridge.commands.migration.return_report import ReturnReport
    from bridge.commands.migration.returns import EntityReturns
    from bridge.operations.migration.last_copied import LastCopied
    from bridge.operations.migration.plan import MigrationSide
    from bridge.operations.migration.return_choice import ReturnChoice


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "back",
        "go back after a run: make the source equal to what the target has done with its messages, "
        "and disable the target's entities; stop all that sends and receives first. Killed, it is "
        "begun again by the same command",
        run=run,
        right="Manage on both namespaces",
        examples=(
            "busbridge migrate back --from prod --to local orders events",
            "busbridge migrate back --from prod --to local 'orders*' --return --yes --json",
        ),
    )
    add_sides(parser)
    parser.add_argument(
        "--return", action="store_true", dest="returns",
        help="bring to the source what the target has taken as new, too",
    )  # fmt: skip
    parser.add_argument(
        "--leave-new", action="store_true",
        help="leave it at the target; without either, new messages end the command before anything "
        "is changed",
    )  # fmt: skip
    parser.add_argument(
        "--still", type=float, default=STILL_S, metavar="SECONDS",
        help=f"for how long nothing may change on both sides before it begins ({STILL_S:.0f})",
    )  # fmt: skip
    add_yes(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Hold the target, settle at the source, bring what it lacks, disable the target."""
    if arguments.returns and arguments.leave_new:
        raise WrongInput("Give --return or --leave-new, not both.")
    if not arguments.entity:
        raise WrongInput(
            "Name the entities that a run has moved, as 'orders*', or '*': what another one lacks "
            "at the target would count as settled there."
        )
    async with ConnectedSides.connected(arguments) as sides:
        with output.interruption.deferred() as asked:
            return await _WayBack(arguments, output, sides).run(asked)


class _WayBack:
    """One way back."""

    def __init__(
        self, arguments: argparse.Namespace, output: Output, sides: ConnectedSides
    ) -> None:
        from bridge.commands.migration.record import CopyRecord

        self._arguments = arguments
        self._output = output
        self._sides = sides
        self._source, self._target = sides.source, sides.target
        self._at_source, self._at_target = sides.at_source, sides.at_target
        self._record = CopyRecord(self._at_target, sides.to_target, sides.run)

    async def run(self, asked: asyncio.Event) -> int:
        """Return the exit code."""
        from bridge.commands.migration.lease import MigrationLease

        await self._sides.check_target()
        async with MigrationLease(self._sides, self._output, asked, "back") as lease:
            return await self._run(lease, asked)

    async def _run(self, lease: MigrationLease, asked: asyncio.Event) -> int:
        from bridge.commands.migration.return_report import ReturnReport
        from bridge.model.properties import kind_of
        from bridge.operations.migration.return_choice import choose

        await self._check_ended()
        here, meant, made = await self._read_source()
        there, created = await self._read_target(here, meant)
        recorded = await self._record.read()
        if not meant and not there.by_path():
            raise WrongInput(
                f"Neither {self._source.name!r} nor {self._target.name!r} has such an entity."
            )
        returns_new: bool = self._arguments.returns
        choice = choose(here, there, meant, recorded, created, made, returns=returns_new)
        kinds = {each.path: kind_of(each).value.lower() for each in there.by_path().values()}
        names = self._source.name, self._target.name
        report = ReturnReport(self._output, choice, *names, kinds)
        returns = await self._returns(choice, meant, recorded, report)
        try:
            await returns.close_returned()
            report.write_choice()
            if not returns.count:
                returns.write_left(is_closed=bool(choice.returned))
                return self._none_comes(choice)
            if not await self._still(here, there, meant, asked):
                return self._stopped()
            return await self._bring_back(returns, lease, asked)
        finally:
            await returns.close()

    def _none_comes(self, choice: ReturnChoice) -> int:
        """Return the exit code when nothing is to come back.

        Raises:
            CommandError: none of the entities has come back before, either.
        """
        if choice.made_since and not self._arguments.leave_new:
            self._say_new(sum(choice.made_since.values()))
            return ExitCode.DIFFERENCES
        if not choice.returned:
            raise CommandError(
                "Nothing was changed: name the entities that `busbridge migrate run` has copied, "
                f"and that {self._target.name} still has. What another one lacks there was not "
                "settled there."
            )
        return ExitCode.DIFFERENCES if choice.is_in_part else ExitCode.DONE

    async def _bring_back(
        self, returns: EntityReturns, lease: MigrationLease, asked: asyncio.Event
    ) -> int:
        from bridge.remote.errors import RemoteError

        try:
            if not await returns.look(asked):
                await returns.release()
                return self._stopped()
            if returns.new and not (self._arguments.returns or self._arguments.leave_new):
                returns.write_left()
                await returns.release()
                self._say_new(returns.new)
                return ExitCode.DIFFERENCES
            if self._arguments.returns and returns.choice.stranded:
                returns.write_left()
                raise CommandError(
                    f"Nothing was changed: what {self._target.name} alone has cannot be brought to "
                    f"{self._source.name}: make a place for it there, receive it first, or give "
                    "--leave-new."
                )
            returns.write_plan()
            self._output.confirm(returns.question(self._source.name, self._target.name))
        except (CommandError, RemoteError):
            with suppress(RemoteError):
                await returns.release()
            raise
        await lease.check()  # who was asked may have taken long
        if not await returns.settle(asked):
            return self._stopped()
        returns.write()
        self._output.say(
            f"{self._source.name} has what {self._target.name} has not settled, whose entities are "
            "disabled now. Start what receives, then what sends, at the source."
        )
        return ExitCode.DIFFERENCES if returns.is_left else ExitCode.DONE

    def _say_new(self, count: int) -> None:
        self._output.say(
            f"Nothing was changed: {count:,} messages are new at {self._target.name}. Give "
            f"--return to bring them to {self._source.name}, or --leave-new."
        )

    def _stopped(self) -> int:
        self._output.say("Stopped. Give the same command to go on; start nothing before.")
        return ExitCode.STOPPED

    async def _check_ended(self) -> None:
        """See that no run is left half-way."""
        prefix = f"busbridge-{self._sides.run}-"
        async for each in self._at_target.queues():
            if each.name.startswith(prefix):
                raise CommandError(
                    f"A run has not ended: give `busbridge migrate run` again first ({each.name})."
                )

    async def _read_source(self) -> tuple[MigrationSide, set[str], Mapping[str, str]]:
        """Return the source, the paths that are meant, and when each was made, in lower case."""
        return await self._sides.read_source(
            self._output, self._arguments.entity, "comes back", may_lack=True
        )

    async def _read_target(
        self, here: MigrationSide, meant: set[str]
    ) -> tuple[MigrationSide, Mapping[str, str]]:
        """Return the target, with what it alone has, and when each entity was made, likewise."""
        return await self._sides.read_target(self._output, here, meant, self._arguments.entity)

    async def _still(
        self, here: MigrationSide, there: MigrationSide, meant: set[str], asked: asyncio.Event
    ) -> bool:
        """See that nothing changes on both sides; False: a signal came before.

        Raises:
            CommandError: something changes.
        """
        from bridge.operations.migration import source_watch

        with self._output.progress(None, "watching both sides"), suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), self._arguments.still)
        if asked.is_set():
            return False
        after, _, _ = await self._read_source()
        after_there, _ = await self._read_target(here, meant)
        changed = False
        meant = meant | set(after_there.by_path())
        for what, before, now in (("source", here, after), ("target", there, after_there)):
            found = source_watch.changes(before, now, meant)
            self._output.say_some(what, found)
            changed = changed or bool(found)
        if changed:
            raise CommandError("Nothing was changed: stop what sends and receives, on both sides.")
        return True

    async def _returns(
        self,
        choice: ReturnChoice,
        meant: set[str],
        recorded: Mapping[str, tuple[LastCopied, int]],
        report: ReturnReport,
    ) -> EntityReturns:
        from bridge.commands.migration.copying import places_of
        from bridge.commands.migration.returning import ReturnSides, RunningReturn
        from bridge.commands.migration.returns import EntityReturns
        from bridge.operations.migration.entity_return import EntityReturn, ReturnRules

        copied = {path: each for path, (each, _) in recorded.items()}
        sides = ReturnSides(
            source=self._sides.from_source,
            target=self._sides.to_target,
            at_source=self._at_source,
            at_target=self._at_target,
            record=self._record,
            run=back_name(self._source),
            target_name=self._target.address.namespace,
            copied=copied,
        )
        returns = EntityReturns(self._output, choice, report)
        for unit in (*choice.returned, *choice.coming):
            made = (await self._at_target.find(unit.path)).time("CreatedAt") or ""
            rules = ReturnRules(
                target=f"{self._target.address.namespace.lower()}/{made}",
                returns=self._arguments.returns,
                copied=copied,
            )
            places = places_of(unit, lambda path: path.lower() in meant)
            back = EntityReturn(places, rules)
            returns.add(RunningReturn(sides, unit, back, places, returns.progress))
        return returns
