"""`busbridge ls`: the entities of a namespace, with the counts of their messages."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bridge.commands import shown_entities
from bridge.commands.entity_listing import listed
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output, Progress
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import add_target, target_of
from bridge.commands.watching import repeat

if TYPE_CHECKING:
    from bridge.remote.administration import RemoteAdministration

WATCH_S = 2.0

Rows = dict[str, dict[str, object]]
"""A row for each path."""


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "ls",
        "list queues, topics and subscriptions with the counts of their messages",
        run=run,
        right="Manage on the namespace",
        examples=("busbridge ls", "busbridge ls 'orders*' --watch 5"),
    )
    parser.add_argument(
        "pattern", nargs="?", default="*", metavar="PATTERN", help="which paths, as 'orders*'"
    )
    parser.add_argument(
        "--watch", nargs="?", type=float, const=WATCH_S, metavar="SECONDS",
        help=f"again and again (default: every {WATCH_S:g} s); in a pipe, what has changed",
    )  # fmt: skip
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """List the entities; with `--watch` until SIGINT."""
    from bridge.remote.administration import RemoteAdministration

    target = target_of(arguments)
    async with RemoteAdministration(target.address, target.credential) as administration:
        with output.progress(None, "reading entities") as progress:
            rows = await _rows(administration, arguments.pattern, progress)
        if arguments.watch is not None:
            await _watch(administration, arguments, output, rows)
        elif rows or not output.is_table:
            output.table(rows.values(), shown_entities.COLUMNS, alarming=shown_entities.ALARMING)
        else:
            output.say(f"There is no entity {arguments.pattern!r} in {target.name!r}.")
    return ExitCode.DONE


async def _rows(administration: RemoteAdministration, pattern: str, progress: Progress) -> Rows:
    entities = await listed(administration, (pattern,), progress)
    return {each.entity.path: shown_entities.row(each.entity) for each in entities}


async def _watch(
    administration: RemoteAdministration, arguments: argparse.Namespace, output: Output, rows: Rows
) -> None:
    """Show the rows again and again; a failing request ends this as it would end the command."""
    with output.interruption.deferred() as asked, _shown(output) as show:
        show(rows)
        await repeat(
            lambda: _rows(administration, arguments.pattern, Progress(None)),
            show,
            asked=asked,
            interval_s=arguments.watch,
        )


@contextmanager
def _shown(output: Output) -> Iterator[Callable[[Rows], None]]:
    """Yield a function that shows rows: as one table that changes, or those that have changed."""
    if output.is_table:
        with output.changing() as draw:
            columns, alarming = shown_entities.COLUMNS, shown_entities.ALARMING
            yield lambda rows: draw(output.drawn(list(rows.values()), columns, alarming=alarming))
        return
    before: Rows = {}

    def show(rows: Rows) -> None:
        nonlocal before
        time = datetime.now(UTC)
        for path, row in rows.items():
            if before.get(path) != row:
                output.record({"time": time, **row})
        for path in before.keys() - rows.keys():
            output.record({"time": time, "path": path, "is_gone": True})
        before = rows

    yield show
