"""`busbridge ls`: the entities of a namespace, with the counts of their messages."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bridge.commands import shown_entities
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output, Progress
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.entity import RemoteEntity

WATCH_S = 2.0
AT_ONCE = 8
"""Topics whose subscriptions are asked for at the same time."""

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
        rows = await _first(administration, arguments.pattern, output)
        if arguments.watch is not None:
            await _watch(administration, arguments, output, rows)
        elif rows or not output.is_table:
            output.table(rows.values(), shown_entities.COLUMNS, alarming=shown_entities.ALARMING)
        else:
            output.say(f"There is no entity {arguments.pattern!r} in {target.name!r}.")
    return ExitCode.DONE


async def _first(administration: RemoteAdministration, pattern: str, output: Output) -> Rows:
    """Read the rows, and show how far that has come."""
    with output.progress(None, "reading entities") as progress:
        return await _rows(administration, pattern, progress)


async def _rows(administration: RemoteAdministration, pattern: str, progress: Progress) -> Rows:
    async def read(found: AsyncIterator[RemoteEntity]) -> list[RemoteEntity]:
        entities = []
        async for each in found:
            entities.append(each)
            progress.advance()
        return entities

    limit = asyncio.Semaphore(AT_ONCE)

    async def below(topic: RemoteEntity) -> list[RemoteEntity]:
        async with limit:
            return await read(administration.subscriptions(topic.name))

    entities = await read(administration.queues())
    topics = await read(administration.topics())
    counts = (topic.description.text_of("SubscriptionCount") for topic in topics)
    progress.total = progress.done + sum(int(each) for each in counts if each.isdecimal())
    entities += topics
    for found in await asyncio.gather(*map(below, topics)):
        entities += found
    entities.sort(key=lambda entity: [name.lower() for name in entity.names])
    return {
        each.path: shown_entities.row(each)
        for each in entities
        if fnmatchcase(each.path.lower(), pattern.lower())
    }


async def _watch(
    administration: RemoteAdministration, arguments: argparse.Namespace, output: Output, rows: Rows
) -> None:
    """Show the rows again and again; a failing request ends this as it would end the command."""
    with output.interruption.deferred() as asked, _shown(output) as show:
        show(rows)
        while not await _is_asked(asked, arguments.watch):
            show(await _rows(administration, arguments.pattern, Progress(None)))


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


async def _is_asked(asked: asyncio.Event, pause_s: float) -> bool:
    """Wait, but no longer than until a signal comes; return whether it has come."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asked.wait(), max(pause_s, 0.1))
    return asked.is_set()
