"""`busbridge top`: backlogs of a namespace's entities, and how fast they change."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from bridge.commands import shown_entities
from bridge.commands.entity_listing import listed
from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output, Progress
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import add_target, target_of
from bridge.commands.watching import repeat
from bridge.operations.rates import (
    COUNTED,
    ORDERS,
    CountsReading,
    EntityRates,
    gone,
    ordered,
    rates_of,
)

if TYPE_CHECKING:
    from bridge.remote.administration import RemoteAdministration

INTERVAL_S: Final = 2.0

SHOWN: Final = ("active", "dead_letter", "scheduled")
COLUMNS: Final = ("path", "kind", *(name for each in SHOWN for name in (each, f"{each}_per_s")))
"""What the table shows."""

DECIMALS: Final = 2

AROUND_ROWS: Final = 7
"""Lines of a terminal that the table takes beside its rows: head, rules, caption, the prompt."""


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "top",
        "show backlogs of queues, topics and subscriptions, and what changes in them a second",
        run=run,
        right="Manage on the namespace",
        examples=(
            "busbridge top 'orders*' 'events/*' --sort dead-letter",
            "busbridge top --interval 10 --count 1 --json | jq -c 'select(.active_per_s > 0)'",
        ),
    )
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="which paths, as 'orders*' (default: all)"
    )
    parser.add_argument(
        "--interval", type=float, default=INTERVAL_S, metavar="SECONDS",
        help=f"the time that a rate is over (default: {INTERVAL_S:g})",
    )  # fmt: skip
    parser.add_argument(
        "--count", type=int, metavar="N",
        help="end after N intervals (default: when it is interrupted)",
    )  # fmt: skip
    parser.add_argument(
        "--sort", choices=ORDERS, default=ORDERS[0], metavar="ORDER",
        help="what is first: the fastest change of any count, in either direction (change), the "
        "most messages in all states (backlog), in one (active, dead-letter, scheduled), or names "
        f"(path) (default: {ORDERS[0]})",
    )  # fmt: skip
    add_target(parser)


@dataclass(frozen=True, slots=True)
class CountsSnapshot:
    """The rows of entities and the readings of their counts, by path, as of a time."""

    time: datetime
    rows: Mapping[str, dict[str, object]]
    readings: Mapping[str, CountsReading]


Show = Callable[[CountsSnapshot], None]


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Show the entities in every interval until the last one, or SIGINT."""
    from bridge.remote.administration import RemoteAdministration

    if arguments.count is not None and arguments.count < 1:
        raise WrongInput("--count is above 0.")
    patterns = arguments.patterns or ["*"]
    target = target_of(arguments)
    async with RemoteAdministration(target.address, target.credential) as administration:
        with output.progress(None, "reading entities") as progress:
            first = await _snapshot(administration, patterns, progress)
        with (
            output.interruption.deferred() as asked,
            _shown(output, arguments.sort, first) as show,
        ):
            await repeat(
                lambda: _snapshot(administration, patterns, Progress(None)),
                show,
                asked=asked,
                interval_s=arguments.interval,
                count=arguments.count,
            )
    return ExitCode.DONE


async def _snapshot(
    administration: RemoteAdministration, patterns: Sequence[str], progress: Progress
) -> CountsSnapshot:
    found = await listed(administration, patterns, progress)
    return CountsSnapshot(
        datetime.now(UTC),
        {each.entity.path: shown_entities.row(each.entity) for each in found},
        {
            each.entity.path: CountsReading(
                each.entity.counts, each.at_s, each.entity.time("CreatedAt") or ""
            )
            for each in found
        },
    )


@contextmanager
def _shown(output: Output, order: str, first: CountsSnapshot) -> Iterator[Show]:
    """Yield a function that shows a snapshot behind the one before; the first is `first`."""
    before = first

    def rates(now: CountsSnapshot) -> list[EntityRates]:
        nonlocal before
        found = ordered(rates_of(before.readings, now.readings), order)
        before = now
        return found

    if not output.is_table:

        def write(now: CountsSnapshot) -> None:
            for path in gone(before.rows, now.rows):
                output.record({"time": now.time, "path": path, "is_gone": True})
            for each in rates(now):
                output.record({"time": now.time, **_row(now, each)})

        yield write
        return

    with output.changing() as draw:

        def show(now: CountsSnapshot) -> None:
            found = rates(now)
            shown = found[: _height()]
            rows = [_row(now, each) for each in shown]
            table = output.drawn(rows, COLUMNS, alarming=shown_entities.ALARMING)
            table.caption = _caption(now.time, found, len(shown))
            table.caption_justify = "left"
            draw(table)

        show(first)
        yield show


def _row(now: CountsSnapshot, found: EntityRates) -> dict[str, object]:
    """Return the row of an entity: what `ls` has of it, and what changes."""
    over_s = found.over_s
    changes = {f"{name}_per_s": _rounded(found.per_s.get(name)) for name in COUNTED}
    return {
        **now.rows[found.path],
        **changes,
        "over_s": None if over_s is None else round(over_s, 3),
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, DECIMALS) + 0.0  # no -0.0


def _height() -> int:
    """Return how many rows the terminal has room for."""
    try:
        lines = os.get_terminal_size().lines
    except OSError:
        lines = 0
    return max((lines or 24) - AROUND_ROWS, 1)


def _caption(time: datetime, found: Sequence[EntityRates], shown: int) -> str:
    """Return what stands below the table: when, over which time, and what a rate is."""
    over = [each.over_s for each in found if each.over_s is not None]
    which = f"{shown:,} of {len(found):,} entities" if shown < len(found) else f"{shown:,} entities"
    if not over:
        return f"{time:%H:%M:%S} UTC, {which}; rates come with the next reading"
    return (
        f"{time:%H:%M:%S} UTC, {which}; a second, over {max(over):.1f} s: what came less what went"
    )
