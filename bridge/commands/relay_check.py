"""`busbridge relay check`: what is wrong with a relay's file, and what to know about its routes."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from bridge.commands.clock import now_ms
from bridge.commands.errors import sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.relay_file import add_file, reading_of

if TYPE_CHECKING:
    from bridge.relay.inspection.finding import Finding
    from bridge.relay.inspection.inspection import Inspection
    from bridge.relay.running.namespaces import Namespaces

COLUMNS = ("place", "result", "route", "text")
LEVELS = ("error", "warning", "note")

RIGHT = "Listen and Send on the sources and targets, and Manage on a bridge's targets and for a '*'"


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "check", "say what is wrong with a relay's file, and what its routes do not keep",
        run=run, right=RIGHT,
        examples=("busbridge relay check relay.toml", "busbridge relay check relay.toml --dry-run"),
    )  # fmt: skip
    add_file(parser)
    parser.add_argument(
        "--dry-run", action="store_true",
        help="count what would go, by a peek at all messages of the sources",
    )  # fmt: skip
    parser.add_argument(
        "--offline", action="store_true", help="look at the file alone, and ask no namespace"
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Check everything; WRONG_INPUT for faults of the file, DIFFERENCES for other errors."""
    from bridge.relay.inspection.finding import Finding
    from bridge.relay.inspection.inspection import PATIENCE, Inspection
    from bridge.relay.running.namespaces import Namespaces

    reading = reading_of(arguments, os.environ)
    if reading.faults:
        _write([Finding.of_fault(each) for each in reading.faults], output)
        return ExitCode.WRONG_INPUT
    if arguments.offline:
        output.say("The file has no fault.")
        return ExitCode.DONE
    async with AsyncExitStack() as stack:
        sides = Namespaces(PATIENCE)
        stack.push_async_callback(sides.close)
        inspection = Inspection(reading, sides)
        with output.progress(None, "asking the namespaces") as progress:
            findings = []
            async for each in inspection.findings():
                findings.append(each)
                progress.advance()
        _write(findings, output)
        if arguments.dry_run:
            await _count(inspection, sides, output)
    has_errors = any(each.level == "error" for each in findings)
    return ExitCode.DIFFERENCES if has_errors else ExitCode.DONE


def _write(findings: list[Finding], output: Output) -> None:
    """Write the findings, in the order of the file, and how many there are."""
    from bridge.relay.plan.fidelity import ALWAYS

    rows = []
    for each in sorted(findings, key=lambda found: (found.position, found.route)):
        row = each.row()
        rows.append({"place": str(each.position), **row} if output.is_table else row)
    if rows:
        output.table(rows, COLUMNS)
    counts = Counter[str](each.level for each in findings)
    if not counts["error"]:
        output.say(ALWAYS)
    output.say(f"{', '.join(_number(counts[each], each) for each in LEVELS)}.")


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


async def _count(inspection: Inspection, sides: Namespaces, output: Output) -> None:
    """Write what would become of the messages of each route that receives."""
    from bridge.relay.inspection.dry_run import Count, counted
    from bridge.relay.plan.choice import chain
    from bridge.remote.errors import RemoteError

    file = inspection.expansion.file
    rows: list[dict[str, object]] = []
    for first in file.first_routes:
        routes = chain(file, first)
        if inspection.is_away(first.source.side):
            continue
        try:
            with output.progress(None, f"peeking at {first.source}"):
                found = await counted(routes, sides, now_ms())
        except RemoteError as error:
            output.say(f"{first.name}: {sentence_of(error)}")
            continue
        for route in routes:
            others = found if route is first else Count()  # of the source, and so of who receives
            rows.append({
                "route": route.name,
                "from": str(route.source),
                "to": str(route.target),
                "goes": found.goes[route.name],
                "completed": others.completes,
                "dead_lettered": others.dead_letters,
                "returned": others.returned,
                "refused": others.refused,
                "expired": others.expired,
                "waiting": others.waiting,
                "without_own_properties": found.left_out[route.name],
            })  # fmt: skip
    if rows:
        output.table(rows)
