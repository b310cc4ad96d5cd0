"""`busbridge schedule cancel`: scheduled messages are removed before they are enqueued."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.schedule_options import (
    ScheduledSearch,
    add_scheduled,
    scheduled_of,
    scheduled_path,
)
from bridge.commands.taking_options import messages
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.remote.management import RemoteManagement


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "cancel",
        "remove scheduled messages before they are enqueued, after asking; `schedule ls` keeps "
        "them as lines before, if asked",
        run=run,
        right="Listen on the entity and Send on the entity (with --number alone: Send)",
        examples=(
            "busbridge schedule cancel orders --due-from 2026-11-28T00:00:00Z "
            "--due-before 2026-11-29T00:00:00Z",
            "busbridge schedule cancel orders --number 281474976710657 --yes",
        ),
    )
    add_scheduled(parser, limit="how many to cancel at most")
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Cancel what is meant."""
    from bridge.remote.namespace import RemoteNamespace

    path, selection = scheduled_path([arguments.entity]), scheduled_of(arguments)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        if selection.is_numbers_alone:
            numbers = sorted(selection.numbers)[: arguments.limit]
            return await _cancel(output, management, dict.fromkeys(numbers), arguments.limit)
        search = ScheduledSearch(output, management, selection, arguments.limit)
        await search.run()
        if (code := search.looking.end_without("scheduled", "cancelled")) is not None:
            return code
        code = await _cancel(output, management, dict(search.due_ms), arguments.limit)
        return search.looking.with_failures(code)


async def _cancel(
    output: Output, management: RemoteManagement, due_ms: dict[int, int | None], limit: int | None
) -> int:
    """Cancel messages after asking."""
    from bridge.commands.cancel_run import CancelRun

    output.confirm(
        f"Removes {messages(len(due_ms))} of {management.entity}, scheduled: never enqueued."
    )
    return await CancelRun(output, management, due_ms, limit=limit).run()
