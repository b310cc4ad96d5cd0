"""`busbridge relay FILE`: hand messages over, as the file's routes say, until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bridge.commands.errors import CommandError
from bridge.commands.exit_codes import ExitCode
from bridge.commands.listening import bound
from bridge.commands.log_lines import log_to_standard_error
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.relay_file import add_file, whole_file

if TYPE_CHECKING:
    from bridge.relay.running.relay import Relay
    from bridge.relay.running.status import RouteStatus

SHOWN_S = 1.0
"""How often the table at a terminal is drawn."""

TOLD_S = 60.0
"""How often a line is written without a terminal; a change of a route's state is written at once.
"""

LOOK_S = 0.5

COLUMNS = (
    "route", "state", "relayed", "per_second", "unconfirmed", "lag_seconds", "refused", "returned",
    "last_error_at", "last_error",
)  # fmt: skip


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "run",
        "hand messages over, as the file's routes say, until it is stopped",
        run=run,
        right="Listen on each source, Send on each target (at a bridge Manage)",
        examples=(
            "busbridge relay relay.toml",
            "busbridge relay relay.toml --admin-port 9419",
        ),
    )
    parser.prog = "busbridge relay"  # as it is called, and shown: without a verb
    add_file(parser)
    parser.add_argument(
        "--admin-port", type=int, metavar="PORT",
        help="the port of /health/live, /health/ready and /metrics (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address of that port (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--lag", type=float, metavar="SECONDS",
        help="how old it is what a target is told to forget (default: 900)",
    )  # fmt: skip


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Relay until a signal; what is under way is finished then, and the rest is given back."""
    from bridge.relay.running.relay import Relay
    from bridge.relay.running.route_run import LAG_S

    file = whole_file(arguments, os.environ)
    log_to_standard_error()
    logging.getLogger("busbridge").setLevel("INFO")  # other packages: what they warn of
    relay = Relay(file, lag_s=LAG_S if arguments.lag is None else arguments.lag)
    async with AsyncExitStack() as stack:
        if arguments.admin_port is not None:
            await _serve(arguments, relay, stack)
        stopping = stack.enter_context(output.interruption.deferred())
        relay.start()
        try:
            await _show(relay, output, stopping)
        finally:
            await relay.stop()
    if not output.is_table:
        _tell(relay, output, relay.statuses)
    return ExitCode.DONE


async def _serve(arguments: argparse.Namespace, relay: Relay, stack: AsyncExitStack) -> None:
    """Answer for health and metrics."""
    from bridge.admin.server import AdminServer
    from bridge.relay.running.metrics import families

    async def current() -> object:
        return families(relay.statuses)

    try:
        listener = bound(arguments.host, arguments.admin_port)
    except OSError as error:
        where = f"{arguments.host} port {arguments.admin_port}"
        raise CommandError(f"The relay cannot listen on {where}: {error.strerror}.") from error
    server = AdminServer(
        reasons=lambda: relay.reasons,
        warnings=lambda: (),
        families=current,  # type: ignore[arg-type]
    )
    await server.start(listener)
    stack.push_async_callback(server.close)


async def _show(relay: Relay, output: Output, stopping: asyncio.Event) -> None:
    """Show what the routes do: a table at a terminal, lines without one."""
    if output.is_table:
        await _draw(relay, output, stopping)
        return
    states: dict[str, str] = {}
    told_s = asyncio.get_running_loop().time()
    while not stopping.is_set():
        now_s = asyncio.get_running_loop().time()
        statuses = relay.statuses
        changed = [each for each in statuses if states.get(each.name) != each.state]
        if now_s - told_s >= TOLD_S:
            changed, told_s = statuses, now_s
        states = {each.name: each.state for each in statuses}
        _tell(relay, output, changed)
        await _wait(stopping, LOOK_S)


async def _draw(relay: Relay, output: Output, stopping: asyncio.Event) -> None:
    before: dict[str, int] = {}
    with output.changing() as draw:
        while not stopping.is_set():
            rows = [_row(each) for each in relay.statuses]
            for row, each in zip(rows, relay.statuses, strict=True):
                row["per_second"] = round((each.relayed - before.get(each.name, 0)) / SHOWN_S)
                row["lag_seconds"] = round(each.lag_s)
            before = {each.name: each.relayed for each in relay.statuses}
            draw(output.drawn(rows, COLUMNS, alarming=("refused",)))
            await _wait(stopping, SHOWN_S)


def _tell(relay: Relay, output: Output, statuses: list[RouteStatus]) -> None:
    for each in statuses:
        output.record(_row(each))


def _row(status: RouteStatus) -> dict[str, object]:
    return {
        "route": status.name,
        "state": status.state.value,
        "since": _time(status.since_ms),
        "relayed": status.relayed,
        "unconfirmed": status.unconfirmed,
        "lag_seconds": round(status.lag_s, 1),
        "refused": status.refused,
        "returned": status.returned,
        "filtered": status.filtered,
        "expired": status.expired,
        "incomplete": status.incomplete,
        "last_error": status.last_error or None,
        "last_error_at": _time(status.last_error_ms) if status.last_error_ms else None,
    }


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


async def _wait(stopping: asyncio.Event, seconds: float) -> None:
    """Wait for a time, or for the stop."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return
