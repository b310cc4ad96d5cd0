"""`busbridge deferred take`: deferred messages are written out and removed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.commands.deferred_options import deferred_of
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.selection_options import add_selection
from bridge.commands.taking_options import messages, undo_of
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.remote.delivery import RemoteDelivery


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "take",
        "receive deferred messages by their numbers, write each as a line of JSON, and complete "
        "it: after asking",
        run=run,
        right="Listen on the entity",
        examples=(
            "busbridge deferred take orders --number 5 --yes > taken.jsonl",
            "busbridge deferred take orders --where \"color = 'red'\" --undo red.jsonl",
        ),
    )
    add_path(parser)
    add_selection(parser, limit="how many to take at most")
    parser.add_argument(
        "--undo", type=Path, metavar="FILE",
        help="write each message to this file before it is completed, confirmed by the disk: one "
        "line each, readable by its owner alone, with bodies",
    )  # fmt: skip
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Take what is meant."""
    from bridge.commands.deferred_run import DeferredRun, sessions_by_number
    from bridge.commands.purging import purge_head
    from bridge.operations.lines.message_lines import line_of
    from bridge.remote.namespace import RemoteNamespace

    path = path_in(arguments.entity, is_dead_letter=arguments.dead_letter)
    selection = deferred_of(arguments)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        found, looking = await sessions_by_number(output, management, selection, arguments.limit)
        if (code := looking.end_without("deferred", "taken")) is not None:
            return code
        output.confirm(f"{messages(len(found))} of {path}, deferred: written out, and removed.")
        with undo_of(arguments.undo, purge_head(target, path)) as undo:

            async def handle(delivery: RemoteDelivery) -> None:
                output.text(line_of(delivery.message))

            taking = DeferredRun(
                output,
                namespace,
                path,
                found,
                handle,
                done_word="taken",
                doubt="It is written out, and may be removed, or not.",
                undo=undo,
                limit=arguments.limit,
            )
            code = await taking.run()
        return looking.with_failures(code)
