"""`busbridge export`: messages as lines from which they come back; they stay where they are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.selection_options import add_selection, selection_of
from bridge.commands.taking_options import messages
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.remote.message import RemoteMessage


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "export",
        "write messages as lines of JSON from which they come back byte for byte; they stay where "
        "they are",
        run=run,
        right="Listen on the entity",
        examples=(
            "busbridge export orders > orders.jsonl",
            "busbridge export events audit --where \"color = 'red'\" | gzip > red.gz",
        ),
    )
    add_path(parser)
    add_selection(parser, limit="how many to write at most")
    parser.add_argument(
        "--from", type=int, default=1, metavar="NUMBER", dest="first",
        help="the sequence number to begin with, to go on (default: the first)",
    )  # fmt: skip
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Write what is meant, page by page."""
    from bridge.commands.looking import Looking
    from bridge.operations.lines.exact_lines import exact_line_of
    from bridge.remote.namespace import RemoteNamespace

    path = path_in(arguments.entity, is_dead_letter=arguments.dead_letter)
    selection = selection_of(arguments)
    target = target_of(arguments)

    def take(found: Sequence[RemoteMessage]) -> None:
        for each in found:
            output.text(exact_line_of(each))

    async with RemoteNamespace(target.address, target.credential) as namespace:
        looking = Looking(
            output,
            await namespace.management(path),
            selection,
            first=arguments.first,
            limit=arguments.limit,
        )
        await looking.run(take, "exporting")
    looking.say_failures()
    output.say(f"Wrote {messages(looking.found)} of {path}.")
    if looking.is_stopped:
        output.say(f"Stopped; go on with --from {looking.next_number}.")
        return ExitCode.STOPPED
    return looking.with_failures(ExitCode.DONE)
