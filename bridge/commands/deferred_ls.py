"""`busbridge deferred ls`: deferred messages, which stay deferred."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge.commands.deferred_options import deferred_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.selection_options import add_selection
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.remote.message import RemoteMessage


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "ls",
        "show deferred messages, which stay deferred, with their numbers",
        run=run,
        right="Listen on the entity",
        examples=(
            "busbridge deferred ls orders --where \"color = 'red'\"",
            "busbridge deferred ls events audit --json | jq .sequence_number",
        ),
    )
    add_path(parser)
    add_selection(parser, limit="how many to show at most")
    parser.add_argument(
        "--from", type=int, default=1, metavar="NUMBER", dest="first",
        help="the sequence number to begin with (default: the first)",
    )  # fmt: skip
    parser.add_argument("--full", action="store_true", help="everything of each message")
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Show what is meant."""
    from bridge.commands.looking import Looking
    from bridge.commands.shown_messages import write
    from bridge.remote.namespace import RemoteNamespace

    path = path_in(arguments.entity, is_dead_letter=arguments.dead_letter)
    selection = deferred_of(arguments)
    target = target_of(arguments)
    shown: list[RemoteMessage] = []

    def take(messages: Sequence[RemoteMessage]) -> None:
        if output.is_table:
            shown.extend(messages)
        else:
            write(output, messages, is_full=arguments.full)

    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        looking = Looking(
            output, management, selection, first=arguments.first, limit=arguments.limit
        )
        await looking.run(take, "looking at deferred messages")
    write(output, shown, is_full=arguments.full)
    looking.say_failures()
    if looking.is_stopped:
        output.say(f"Stopped; go on with --from {looking.next_number}.")
        return ExitCode.STOPPED
    if not looking.found and not looking.failures:
        output.say(f"{path} has no such deferred messages.")
    return looking.with_failures(ExitCode.DONE)
