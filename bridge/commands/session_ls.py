"""`busbridge session ls`: the sessions of a queue or a subscription."""

from __future__ import annotations

import argparse
from typing import Final

from bridge.commands.errors import sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import add_target, target_of

PAGE: Final = 100


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "ls",
        "list the sessions that have messages or a state; none is locked",
        run=run,
        right="Listen on the entity",
        examples=(
            "busbridge session ls orders",
            "busbridge session ls events audit --state-set-since 2026-11-27T00:00:00Z --json",
        ),
    )
    add_path(parser, has_dead_letter=False)
    parser.add_argument(
        "--state-set-since", metavar="TIME",
        help="those alone whose state was set since then: 2026-11-27T09:00:00Z",
    )  # fmt: skip
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """List them, page by page."""
    from bridge.commands.selection_options import time_in
    from bridge.remote.errors import RemoteError
    from bridge.remote.namespace import RemoteNamespace

    path = path_in(arguments.entity)
    since_ms = time_in("--state-set-since", arguments.state_set_since)
    target = target_of(arguments)
    found: dict[str, None] = {}  # a page can begin before the end of the last one
    why = ""
    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        skip = 0
        with (
            output.interruption.deferred() as asked,
            output.progress(None, "listing sessions") as bar,
        ):
            while not asked.is_set():
                try:
                    page = await management.message_sessions(skip, PAGE, since_ms)
                except RemoteError as error:
                    if not skip:
                        raise
                    why = sentence_of(error)
                    break
                if not page:
                    break
                skip += len(page)
                bar.advance(len(page))
                new = [each for each in page if each not in found]
                found.update(dict.fromkeys(new))
                if not output.is_table:
                    output.table({"session_id": each} for each in new)
    if output.is_table and found:
        output.table([{"session_id": each} for each in found])
    if why or asked.is_set():
        output.say(f"{why or 'Stopped.'} These are not all: give the same command again.")
        return ExitCode.STOPPED
    if not found:
        output.say("There are no such sessions." if since_ms else "There are no sessions.")
    return ExitCode.DONE
