"""`busbridge migrate map`: the numbers that messages had, beside those that they have."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.remote.message import RemoteMessage

COLUMNS: Final = ("entity", "queue", "old", "new", "state")

SHOWN_MAX: Final = 1_000
"""Messages that a table shows; lines of JSON have all."""


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "map",
        "show which numbers the messages of an entity had where a relay took them, beside their "
        "numbers now; each message is looked at, and none is taken",
        run=run,
        right="Manage on the namespace, which has Listen on its entities",
        examples=(
            "busbridge migrate map orders -n local",
            "busbridge migrate map 'orders*' events -n local --json > map.jsonl",
        ),
    )
    parser.add_argument(
        "entity", nargs="+", metavar="ENTITY",
        help="which paths, as 'orders*'; a topic's name takes its subscriptions",
    )  # fmt: skip
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Write a row for each message that had another number."""
    from bridge.commands.migration_peeking import pages, places
    from bridge.commands.migration_sides import SideReading, chosen
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.namespace import RemoteNamespace

    target = target_of(arguments)
    shown: list[dict[str, Any]] = []
    found = others = 0
    async with (
        RemoteAdministration(target.address, target.credential) as administration,
        RemoteNamespace(target.address, target.credential) as namespace,
    ):
        with output.progress(None, "reading entities") as progress:
            reading = SideReading(administration, progress)
            await reading.side()
        meant = chosen(reading.kinds, arguments.entity)
        if not meant:
            raise WrongInput(f"{target.name!r} has no such entity.")
        with (
            output.interruption.deferred() as asked,
            output.progress(None, "looking at messages") as progress,
        ):
            for path, kind in sorted(reading.kinds.items()):
                if path.lower() not in meant:
                    continue
                for place, is_dead in places(path, is_topic=kind == "Topic"):
                    management = namespace.management_of(place)
                    async for page in pages(management, asked):
                        progress.advance(len(page))
                        rows = [row for each in page if (row := _row(path, each, is_dead=is_dead))]
                        found += len(rows)
                        others += len(page) - len(rows)
                        if output.is_table:
                            shown += rows[: SHOWN_MAX - len(shown)]
                        else:
                            for row in rows:
                                output.record(row)
                    await management.close()
            is_stopped = asked.is_set()
    if output.is_table:
        output.table(shown, COLUMNS)
        if found > len(shown):
            output.say(f"{found - len(shown):,} more: --json shows all.")
    stopped = "Stopped. " if is_stopped else ""
    output.say(
        f"{stopped}{found:,} messages had another number; {others:,} have come under their own."
    )
    return ExitCode.STOPPED if is_stopped else ExitCode.DONE


def _row(path: str, message: RemoteMessage, *, is_dead: bool) -> dict[str, Any] | None:
    """Return what is shown of a message; `None` for one that had no other number."""
    from bridge.operations.migration.former_numbers import former_numbers
    from bridge.operations.migration.state_counts import state_of

    before = former_numbers(message)
    if not before:
        return None
    return {
        "entity": path,
        "queue": "dead letters" if is_dead else "messages",
        "old": before[-1],
        "new": message.sequence_number,
        "state": state_of(message, is_dead=is_dead),
        "before": list(before[:-1]),
    }
