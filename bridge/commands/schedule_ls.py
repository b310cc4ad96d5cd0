"""`busbridge schedule ls`: scheduled messages, which stay scheduled."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.schedule_options import add_scheduled, scheduled_of, scheduled_path
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.remote.message import RemoteMessage

COLUMNS: Final = ("number", "due_utc", "message_id", "session_id", "subject", "body")


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "ls",
        "show scheduled messages: a table in the order in which they are due, lines by number",
        run=run,
        right="Listen on the entity",
        examples=(
            "busbridge schedule ls orders --due-before 2026-11-28T00:00:00Z",
            "busbridge schedule ls orders --where \"sys.Label = 'invoice'\" > kept.jsonl",
        ),
    )
    add_scheduled(parser, limit="how many to show at most, by number")
    parser.add_argument("--full", action="store_true", help="everything of each message")
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Show what is meant."""
    from bridge.commands.looking import Looking
    from bridge.commands.shown_messages import write
    from bridge.remote.namespace import RemoteNamespace

    path, selection = scheduled_path([arguments.entity]), scheduled_of(arguments)
    target = target_of(arguments)
    is_table = output.is_table and not arguments.full
    shown: list[RemoteMessage] = []

    def take(messages: Sequence[RemoteMessage]) -> None:
        if is_table:
            shown.extend(messages)
        else:
            write(output, messages, is_full=arguments.full)

    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        looking = Looking(
            output, management, selection, first=selection.first or 1, limit=arguments.limit
        )
        await looking.run(take, "looking at scheduled messages")
    if shown:
        output.table(rows(shown, shutil.get_terminal_size().columns), COLUMNS)
    looking.say_failures()
    if looking.is_stopped:
        output.say(f"Stopped; go on with --from {looking.next_number}.")
        return ExitCode.STOPPED
    if not looking.found and not looking.failures:
        output.say("There are no such messages." if looking.looked_at else "There are no messages.")
    return looking.with_failures(ExitCode.DONE)


def rows(messages: Sequence[RemoteMessage], columns: int) -> list[dict[str, str]]:
    """Return the rows of a table, those due first in front.

    Args:
        columns: characters of the terminal's width.
    """
    from bridge.commands.shown_messages import body_width, row

    found = []
    for each in sorted(messages, key=lambda each: int(each.scheduled_enqueue_time_ms or 0)):
        due = datetime.fromtimestamp(int(each.scheduled_enqueue_time_ms or 0) / 1000, UTC)
        found.append(row(each) | {"due_utc": due.strftime("%Y-%m-%d %H:%M:%S")})
    width = body_width(found, COLUMNS, columns)
    return [each | {"body": each["body"][:width]} for each in found]
