"""`busbridge schedule move`: scheduled messages are scheduled anew for another time."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from bridge.commands.cancelling import Cancelled, cancel, cancel_old
from bridge.commands.clock import now_ms
from bridge.commands.errors import WrongInput, sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.schedule_options import (
    ScheduledSearch,
    add_scheduled,
    scheduled_of,
    scheduled_path,
)
from bridge.commands.taking_options import messages
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.operations.changes import MessageChanges
    from bridge.operations.scheduled_selection import ScheduleMove
    from bridge.remote.errors import RemoteError
    from bridge.remote.management import RemoteManagement
    from bridge.remote.message import RemoteMessage

DUE_MS: Final = 5_000
"""Clocks differ: a message may be enqueued so long before its time on this machine."""


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "move",
        "have scheduled messages enqueued at another time, each with a new number. A busbridge "
        "does it in one step; elsewhere each is scheduled anew, and then the old one is cancelled, "
        "or, if it was due meanwhile, the new one is withdrawn",
        run=run,
        right="Listen on the entity and Send on the entity",
        examples=(
            "busbridge schedule move orders --number 281474976710657 --to 2099-11-28T09:00:00Z",
            "busbridge schedule move orders --where \"sys.Label = 'invoice'\" --by PT1H --yes",
        ),
    )
    add_scheduled(parser, limit="how many to move at most")
    times = parser.add_mutually_exclusive_group(required=True)
    times.add_argument(
        "--to", metavar="TIME",
        help="have them enqueued then: 2026-11-27T09:00:00Z, or PT5M from now; 30 seconds ahead at "
        "least",
    )  # fmt: skip
    times.add_argument(
        "--by",
        metavar="DURATION",
        help="have each enqueued so much later: PT1H; earlier: --by=-PT1H",
    )
    parser.add_argument(
        "--new-id", action="store_true",
        help="a MessageId that is made of source, number and time; needed where duplicates are "
        "detected, but at a busbridge",
    )  # fmt: skip
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Move what is meant."""
    from bridge.commands.moving_in_place import moves_in_place
    from bridge.relay.plan.source_identity import source_name
    from bridge.remote.namespace import RemoteNamespace

    path, selection, move = (
        scheduled_path([arguments.entity]),
        scheduled_of(arguments),
        _move(arguments),
    )
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        search = ScheduledSearch(output, management, selection, arguments.limit)
        await search.run()
        if (code := search.looking.end_without("scheduled", "moved")) is not None:
            return code
        where = f"by {arguments.by}" if arguments.to is None else f"to {arguments.to}"
        output.confirm(f"Moves {messages(len(search.due_ms))} of {path}, scheduled, {where}.")
        source = source_name(target.address.namespace, path) if arguments.new_id else None
        is_in_place = await moves_in_place(management)
        moving = _Moving(output, management, move, source, list(search.due_ms), is_in_place)
        code = await moving.run()
        return search.looking.with_failures(code)


def _move(arguments: argparse.Namespace) -> ScheduleMove:
    from bridge.commands.send import Schedule
    from bridge.model.duration import parse_duration_ms
    from bridge.operations.lines.scalar_values import ValueRefused
    from bridge.operations.scheduled_selection import ScheduleMove

    try:
        if arguments.to is not None:
            move = ScheduleMove(to_ms=Schedule.read(arguments.to, "--to").at_ms(now_ms()))
            move.due_ms(0, now_ms())
            return move
        text = arguments.by
        sign = -1 if text[:1] == "-" else 1
        return ScheduleMove(by_ms=sign * parse_duration_ms(text.removeprefix("-")))
    except (ValueRefused, ValueError) as error:
        raise WrongInput(f"{'--by' if arguments.to is None else '--to'}: {error}.") from None


@dataclass(slots=True)
class _Moved:
    """What became of the messages."""

    done: int = 0
    same: int = 0
    rows: list[dict[str, object]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class _NotMoved(Exception):
    """A message stays as it is, or is there twice; the text says it."""


class _Moving:
    """Moves messages one by one.

    Args:
        source: of which new MessageIds are made; `None`: ids stay.
        numbers: the messages, in order.
        is_in_place: the namespace moves a message in one step.
    """

    def __init__(
        self,
        output: Output,
        management: RemoteManagement,
        move: ScheduleMove,
        source: str | None,
        numbers: list[int],
        is_in_place: bool,
    ) -> None:
        self._is_in_place = is_in_place
        self._output = output
        self._management = management
        self._move = move
        self._source = source
        self._numbers = numbers
        self._moved = _Moved()
        self._under_way = ""

    async def run(self) -> int:
        """Move them, and return the exit code."""
        from bridge.remote.errors import RemoteError, RemoteRefused

        output, moved = self._output, self._moved
        try:
            with (
                output.interruption.deferred() as asked,
                output.progress(len(self._numbers), "moving") as bar,
            ):
                for number in self._numbers:
                    if asked.is_set():
                        return self._stopped("Stopped.", number)
                    try:
                        await self._moved_one(number)
                    except _NotMoved as error:
                        moved.failures.append(f"message {number}: {error}")
                    except RemoteError as error:
                        if isinstance(error, RemoteRefused) and not self._under_way:
                            moved.failures.append(f"message {number}: {sentence_of(error)}")
                        elif not self._under_way and not moved.done:
                            raise
                        else:
                            return self._stopped(self._sentence(error), number)
                    except asyncio.CancelledError:  # the second interrupt
                        return self._stopped(f"Stopped at once.{self._under_way}", number)
                    self._under_way = ""
                    bar.advance()
        finally:
            if output.is_table and moved.rows:
                output.table(moved.rows)
        output.say_some("not moved", moved.failures)
        same = f" {messages(moved.same)} were due at that time before." if moved.same else ""
        output.say(f"Moved {messages(moved.done)} of {self._management.entity}.{same}")
        return ExitCode.DIFFERENCES if moved.failures else ExitCode.DONE

    def _sentence(self, error: RemoteError) -> str:
        return f"{sentence_of(error)}{self._under_way}"

    async def _moved_one(self, number: int) -> None:
        """Move a message, if it is scheduled and not due at its new time already."""
        from bridge.operations.changes import scheduled, sent_again
        from bridge.operations.lines.scalar_values import ValueRefused

        message = await self._scheduled(number)
        if message is None:
            raise _NotMoved("it is not scheduled any more")
        was_ms = int(message.scheduled_enqueue_time_ms or 0)
        try:
            due_ms = self._move.due_ms(was_ms, now_ms())
            copy = sent_again(message, now_ms(), self._changes(message))
        except ValueRefused as error:
            raise _NotMoved(f"{error}") from None
        if due_ms is None:
            self._moved.same += 1
            return
        due = datetime.fromtimestamp(due_ms / 1000, UTC)
        if self._is_in_place:
            new = await self._in_place(number, was_ms, scheduled(copy, due_ms), due)
        else:
            new = await self._anew(number, was_ms, scheduled(copy, due_ms), due_ms)
        self._moved.done += 1
        shown: dict[str, object] = {"scheduled_enqueue_time": due}
        if self._output.is_table:
            row = {"sequence_number": str(new or ""), **shown, "was": str(number)}
            self._moved.rows.append(row)
        else:
            self._output.record({"sequence_number": new or None, **shown, "was": number})

    async def _in_place(self, number: int, was_ms: int, copy: RemoteMessage, due: datetime) -> int:
        """Move a message in one step; return its new number."""
        from bridge.commands.moving_in_place import NotInPlace, move_in_place
        from bridge.remote.errors import RemoteError

        self._under_way = f" Message {number} is scheduled once, for {due:%FT%TZ} or as before."
        try:
            return await move_in_place(self._management, number, was_ms, copy)
        except NotInPlace as error:
            raise _NotMoved(str(error)) from None
        except RemoteError as error:
            if not error.in_doubt:
                self._under_way = ""
            raise

    async def _anew(self, number: int, was_ms: int, copy: RemoteMessage, due_ms: int) -> int:
        """Schedule a message anew, see that it is there, and cancel the old one."""
        from bridge.remote.errors import RemoteError

        management, due = self._management, datetime.fromtimestamp(due_ms / 1000, UTC)
        self._under_way = (
            f" Message {number} may be scheduled twice now, the second time for {due:%FT%TZ}: look "
            "at `schedule ls`, and cancel one."
        )
        try:
            (new,) = await management.schedule([copy])
        except RemoteError as error:
            if not error.in_doubt:
                self._under_way = ""
            raise
        if new == number or await self._scheduled(new) is None:
            raise _NotMoved(await self._dropped(number, new, due_ms))
        self._under_way = (
            f" Message {number} may be scheduled twice now, as {new} for {due:%FT%TZ}: look at "
            "`schedule ls`, and cancel one."
        )
        if why := await cancel_old(management, number, was_ms, new, due_ms):
            raise _NotMoved(why)
        return new

    async def _dropped(self, number: int, new: int, due_ms: int) -> str:
        """Return why a message stays whose second one is not there; it is not there later, either.

        An entity that detects duplicates answers as if it had scheduled it.
        """
        if new != number:
            found = await cancel(self._management, new, due_ms)
            if found is Cancelled.CANCELLED:
                return f"{new}, scheduled anew, was not seen, and is withdrawn: it stays as it is"
            if now_ms() >= due_ms - DUE_MS:
                return f"{new}, scheduled anew, may be enqueued: look whether it is there twice"
        return (
            "the namespace has not scheduled a second one (does the entity detect duplicates? then "
            "give --new-id): it stays as it is"
        )

    async def _scheduled(self, number: int) -> RemoteMessage | None:
        """Return a message if it is scheduled."""
        found = await self._management.peek(number, 1)
        if found and found[0].sequence_number == number and found[0].state == "scheduled":
            return found[0]
        return None

    def _changes(self, message: RemoteMessage) -> MessageChanges:
        from bridge.operations.changes import MessageChanges
        from bridge.relay.plan.source_identity import derived_message_id

        if self._source is None:
            return MessageChanges(keeps_death=True)
        number = int(message.sequence_number or 0)
        enqueued_ms = int(message.enqueued_time_ms or 0)
        new_id = derived_message_id(self._source, number, enqueued_ms)
        return MessageChanges({"message_id": new_id}, keeps_death=True)

    def _stopped(self, why: str, number: int) -> int:
        """Say how to go on, and return the exit code."""
        moved, to_ms = self._moved, self._move.to_ms
        self._output.say_some("not moved", moved.failures)
        way = f"--from {number} --through {self._numbers[-1]}"
        if to_ms is not None:
            at = datetime.fromtimestamp(to_ms / 1000, UTC).isoformat(timespec="milliseconds")
            way = f"--to {at.replace('+00:00', 'Z')} {way}"
        self._output.say(
            f"{why} Moved {messages(moved.done)} of {self._management.entity}. Go on with {way}."
        )
        return ExitCode.STOPPED
