"""The ways back of a migration's entities, side by side, and what is said of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from bridge.commands.errors import CommandError
from bridge.commands.migration.meeting import TOGETHER, together
from bridge.commands.migration.return_report import LEFT, ReturnReport
from bridge.commands.migration.returning import RunningReturn
from bridge.commands.output import Output, Progress
from bridge.operations.migration.copy_effects import CopyStopped
from bridge.operations.migration.return_choice import ReturnChoice
from bridge.operations.migration.return_difference import SeriesDifference
from bridge.operations.migration.return_effects import SettledAs


class EntityReturns:
    """The ways back of all entities: all are looked at before any is changed.

    Args:
        report: says what does not come back.

    Attributes:
        choice: which entities come back, and which do not.
    """

    def __init__(self, output: Output, choice: ReturnChoice, report: ReturnReport) -> None:
        self._output = output
        self._report = report
        self.choice = choice
        self._returns: list[RunningReturn] = []
        self._gate = asyncio.Semaphore(TOGETHER)
        self._progress = Progress(None)
        self._stays: dict[str, int] = {}

    def add(self, each: RunningReturn) -> None:
        """Add an entity."""
        self._returns.append(each)

    @property
    def count(self) -> int:
        """How many entities are to come back."""
        return len(self._returns)

    async def close_returned(self) -> None:
        """Leave out what has come back before.

        A command that was killed may have left it open at the target, and held.
        """
        returned = [each for each in self._returns if each.entity in self.choice.returned]
        for each in returned:
            await each.close_target()
            self._output.say(
                f"{each.entity.path} is disabled at the target: it has come back before."
            )
            self._returns.remove(each)

    def progress(self) -> Progress:
        """Return what is told of each message that was looked at."""
        return self._progress

    async def look(self, asked: asyncio.Event) -> bool:
        """Hold all entities of the target, and look at both sides; False: a signal came before.

        Raises:
            CommandError: one of them cannot come back.
            RemoteError: a namespace refuses, or does not answer.
        """
        return await self._go("reading both sides", asked, is_agreed=False)

    async def settle(self, asked: asyncio.Event) -> bool:
        """Do what the source lacks, and disable the target; False: a signal came before."""
        return await self._go("making the source equal", asked, is_agreed=True)

    async def _go(self, text: str, asked: asyncio.Event, *, is_agreed: bool) -> bool:
        with self._output.progress(None, text) as self._progress:
            try:
                return all(
                    await together(
                        [partial(self._one, each, asked, is_agreed) for each in self._returns]
                    )
                )
            except CopyStopped as error:
                raise CommandError(str(error)) from None

    async def _one(self, each: RunningReturn, asked: asyncio.Event, is_agreed: bool) -> bool:
        async with self._gate:
            return await each.go(asked, is_agreed=is_agreed)

    async def release(self) -> None:
        """End the holds: nothing was changed.

        Raises:
            RemoteError: that of the first entity whose hold does not end; others' end all the same.
        """
        ended = await asyncio.gather(*map(self._end, self._returns), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    async def _end(self, each: RunningReturn) -> None:
        async with self._gate:
            await each.release()

    async def close(self) -> None:
        """Detach all links."""
        for each in self._returns:
            await each.close()

    # -- what is said

    @property
    def _found(self) -> Iterator[tuple[str, SeriesDifference]]:
        for each in self._returns:
            yield from each.back.account

    @property
    def new(self) -> int:
        """How many messages the target has taken as new, and are not to be returned."""
        new = sum(found.new.count for _, found in self._found)
        choice = self.choice
        return new + sum(choice.stranded.values()) + sum(choice.made_since.values())

    @property
    def is_left(self) -> bool:
        """Whether messages are not at the source as they are at the target."""
        left = any(getattr(found, name).count for _, found in self._found for name, _ in LEFT)
        return left or self.choice.is_in_part

    def write_plan(self) -> None:
        """Say what is to be done with each queue and subscription."""
        self._stays = {
            each.entity.path: sum(found.stays for _, found in each.back.account)
            for each in self._returns
        }
        for path, found in self._found:
            completed, deferred, dead = (found.count(how) for how in SettledAs)
            brought = len(found.brought)
            if completed or deferred or dead or brought:
                self._output.say(
                    f"{path}: {completed:,} were settled at the target and are completed, "
                    f"{deferred:,} are deferred, {dead:,} dead-lettered, {brought:,} sent to the "
                    f"source; {found.stays:,} stay."
                )
                if not self._output.is_table:
                    self._output.record({
                        "part": "plan",
                        "entity": path,
                        "completed": completed,
                        "deferred": deferred,
                        "dead_lettered": dead,
                        "sent": brought,
                        "stays": found.stays,
                    })  # fmt: skip

    def question(self, source: str, target: str) -> str:
        """Return what is to be agreed to, with figures."""
        completed = sum(found.count(SettledAs.COMPLETED) for _, found in self._found)
        return (
            f"{completed:,} messages of {source} are completed, as {target} has settled them; then "
            f"{self.count:,} queues and topics of {target} are disabled. All that sends and "
            "receives is stopped?"
        )

    def write_left(self, *, is_closed: bool = False) -> None:
        """Say what is not at the source as it is at the target; see `ReturnReport.write_left`."""
        self._report.write_left(self._found, is_closed=is_closed)

    def write(self) -> None:
        """Write what was done with each entity, and the numbers of what was brought."""
        rows = [
            {
                "part": "entity",
                "entity": each.entity.path,
                "stays": self._stays[each.entity.path],
                "settled": each.back.settled,
                "sent": each.back.sent,
                **{
                    name: sum(getattr(found, name).count for _, found in each.back.account)
                    for name, _ in LEFT
                },
            }
            for each in self._returns
        ]
        none = dict.fromkeys(rows[0], 0)
        rows += [
            {**none, "part": "entity", "entity": path, "new": count}
            for path, count in sorted({**self.choice.stranded, **self.choice.made_since}.items())
        ]
        self._output.table(rows, [name for name in rows[0] if name != "part"])
        numbers = [
            {"part": "number", "entity": path, "was": was, "sequence_number": number}
            for path, found in self._found
            for was, number in found.numbers
        ]
        if numbers:
            self._output.table(numbers, ("entity", "was", "sequence_number"))
        self.write_left(is_closed=True)
