"""`busbridge migrate map`: the numbers that messages had, beside those that they have."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import TEXTS_SAID, Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import add_target, target_named, target_of

if TYPE_CHECKING:
    from bridge.remote.message import RemoteMessage

COLUMNS: Final = ("entity", "queue", "old", "new", "state", "source")

SHOWN_MAX: Final = 1_000
"""Messages that a table shows; lines of JSON have all."""


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "map",
        "show which numbers the messages of an entity had where a relay, or a run with --renumber, "
        "took them, beside their numbers now; each message is looked at, and none is taken",
        run=run,
        right="Manage on the namespace, which has Listen on its entities",
        examples=(
            "busbridge migrate map orders -n local --from prod",
            "busbridge migrate map 'orders*' events -n local --json > map.jsonl",
        ),
    )
    parser.add_argument(
        "entity", nargs="+", metavar="ENTITY",
        help="which paths, as 'orders*'; a topic's name takes its subscriptions",
    )  # fmt: skip
    parser.add_argument(
        "--from", action="append", default=[], dest="sources", metavar="PROFILE",
        help="a source of runs with --renumber, which is shown by this name; may be given again",
    )  # fmt: skip
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Write a row for each message that had another number."""
    from bridge.commands.migration.connection import renumbering_name
    from bridge.commands.migration.peeking import pages, places
    from bridge.commands.migration.sides import SideReading, chosen
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.namespace import RemoteNamespace

    target = target_of(arguments)
    names = {renumbering_name(target_named(each)): each for each in arguments.sources}
    shown: list[dict[str, Any]] = []
    untold: list[str] = []
    found = unread = others = 0
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
                        rows = [
                            row
                            for each in page
                            if (row := _row(path, each, names, is_dead=is_dead))
                        ]
                        without = [row for row in rows if row["old"] is None]
                        found += len(rows) - len(without)
                        unread += len(without)
                        others += len(page) - len(rows)
                        untold += map(_untold, without[: TEXTS_SAID - len(untold)])
                        if output.is_table:
                            shown += rows[: SHOWN_MAX - len(shown)]
                        else:
                            for row in rows:
                                output.record(row)
                    await management.close()
            is_stopped = asked.is_set()
    if output.is_table:
        output.table(shown, COLUMNS)
        if found + unread > len(shown):
            output.say(f"{found + unread - len(shown):,} more: --json shows all.")
    output.say_some("old number not told", untold, unread)
    stopped = "Stopped. " if is_stopped else ""
    output.say(
        f"{stopped}{found:,} messages had another number; {others:,} have come under their own."
    )
    return ExitCode.STOPPED if is_stopped else ExitCode.DONE


def _row(
    path: str, message: RemoteMessage, names: Mapping[str, str], *, is_dead: bool
) -> dict[str, Any] | None:
    """Return what is shown of a message; `None` for one that had no other number.

    Args:
        names: how runs are shown.
    """
    from bridge.operations.migration.former_numbers import former_number
    from bridge.operations.migration.state_counts import state_of

    found = former_number(message)
    if found is None:
        return None
    return {
        "entity": path,
        "queue": "dead letters" if is_dead else "messages",
        "old": found.number,
        "new": message.sequence_number,
        "state": state_of(message, is_dead=is_dead),
        "source": ", ".join(names.get(each, each) for each in found.source.split(", ")),
        "before": list(found.before),
        "says": found.says,
    }


def _untold(row: dict[str, Any]) -> str:
    """Return a sentence about a message whose old number is not told."""
    return (
        f"{row['entity']} ({row['queue']}): message {row['new']} has the property repl-sequence "
        f"{row['says']}."
    )
