"""`busbridge dead-letter ls`, `group` and `export`: dead letters, which stay where they are."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from bridge.commands.clock import now_ms
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.selection_options import add_selection, selection_of
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.commands.looking import Looking
    from bridge.operations.groups import DeadLetterGroup
    from bridge.remote.message import RemoteMessage

COLUMNS: Final = ("count", "reason", "source", "exception", "oldest", "newest", "first")

Take = Callable[[Sequence["RemoteMessage"]], None]


def register(verbs: Commands) -> None:
    """Add the commands."""
    ls = add_command(
        verbs,
        "ls",
        "show dead letters, which stay where they are",
        run=_ls,
        right="Listen on the entity",
        examples=(
            "busbridge dead-letter ls orders --where \"DeadLetterReason = 'bad'\"",
            "busbridge dead-letter ls events audit --limit 5 --full",
        ),
    )
    _add(ls, limit="how many to show at most")
    ls.add_argument("--full", action="store_true", help="everything of each message, not a table")
    group = add_command(
        verbs,
        "group",
        "count dead letters by reason, source and exception, with their ages",
        run=_group,
        right="Listen on the entity",
        examples=(
            "busbridge dead-letter group orders",
            "busbridge dead-letter group events audit --json | jq -r .reason",
        ),
    )
    _add(group, limit="how many to count at most")
    export = add_command(
        verbs,
        "export",
        "write dead letters as lines of JSON from which they come back byte for byte; they stay "
        "where they are",
        run=_export,
        right="Listen on the entity",
        examples=(
            "busbridge dead-letter export orders > dead.jsonl",
            "busbridge dead-letter export orders --where \"color = 'red'\" | gzip > dead.gz",
        ),
    )
    _add(export, limit="how many to write at most")


def _add(parser: argparse.ArgumentParser, *, limit: str) -> None:
    add_path(parser, has_dead_letter=False)
    add_selection(parser, limit=limit)
    parser.add_argument(
        "--from", type=int, default=1, metavar="NUMBER", dest="first",
        help="the sequence number to begin with (default: the first)",
    )  # fmt: skip
    add_target(parser)


async def _looked(arguments: argparse.Namespace, output: Output, take: Take, what: str) -> Looking:
    from bridge.commands.looking import Looking
    from bridge.remote.namespace import RemoteNamespace

    path = path_in(arguments.entity, is_dead_letter=True)
    selection = selection_of(arguments)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        looking = Looking(
            output, management, selection, first=arguments.first, limit=arguments.limit
        )
        await looking.run(take, what)
    return looking


def _ended(looking: Looking, output: Output, sentence: str) -> int:
    """Say what was found, and return the exit code."""
    looking.say_failures()
    if looking.is_stopped:
        output.say(f"Stopped; go on with --from {looking.next_number}.")
        return ExitCode.STOPPED
    if not looking.looked_at:
        output.say("There are no dead letters.")
    elif sentence:
        output.say(sentence)
    return looking.with_failures(ExitCode.DONE)


async def _ls(arguments: argparse.Namespace, output: Output) -> int:
    from bridge.commands.shown_messages import ShownMessages

    shown = ShownMessages(output, is_full=arguments.full)
    looking = await _looked(arguments, output, shown.add, "looking at dead letters")
    shown.end()
    sentence = f"{looking.looked_at:,} dead letters were looked at." if arguments.where else ""
    return _ended(looking, output, sentence if output.is_table else "")


async def _group(arguments: argparse.Namespace, output: Output) -> int:
    from bridge.operations.groups import DeadLetterGroups

    groups = DeadLetterGroups()

    def take(messages: Sequence[RemoteMessage]) -> None:
        for each in messages:
            groups.add(each)

    looking = await _looked(arguments, output, take, "counting dead letters")
    now = now_ms()
    found = groups.found()
    if found or not output.is_table:
        make = _cells if output.is_table else _row
        output.table([make(each, now) for each in found], COLUMNS)
    return _ended(looking, output, f"{groups.total:,} dead letters." if output.is_table else "")


def _row(group: DeadLetterGroup, now_ms: int) -> dict[str, object]:
    """Return a group as a line of JSON has it."""
    return {
        "count": group.count,
        "reason": group.reason,
        "source": group.source,
        "exception": group.exception,
        "oldest": _time(group.oldest_ms),
        "newest": _time(group.newest_ms),
        "oldest_age_s": group.oldest_age_ms(now_ms) // 1_000,
        "first": group.first,
        "description": group.description,
    }


def _cells(group: DeadLetterGroup, now_ms: int) -> dict[str, object]:
    """Return a group as a table shows it."""
    return _row(group, now_ms) | {
        "oldest": _age(now_ms - group.oldest_ms) if group.oldest_ms else "",
        "newest": _age(now_ms - group.newest_ms) if group.newest_ms else "",
        "first": str(group.first),
    }


def _time(value_ms: int) -> datetime | None:
    return datetime.fromtimestamp(value_ms / 1000, UTC) if value_ms else None


def _age(age_ms: int) -> str:
    """Return an age for people: `3 d`, `5 h`, `12 min`, `40 s`."""
    seconds = max(0, age_ms // 1_000)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


async def _export(arguments: argparse.Namespace, output: Output) -> int:
    from bridge.operations.lines.exact_lines import exact_line_of

    def take(messages: Sequence[RemoteMessage]) -> None:
        for each in messages:
            output.text(exact_line_of(each))

    looking = await _looked(arguments, output, take, "exporting dead letters")
    return _ended(looking, output, f"Wrote {looking.found:,} dead letters.")
