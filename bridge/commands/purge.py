"""`busbridge purge`: removes the messages of one state."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from bridge.commands.dry_run import dry_run
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command, add_yes
from bridge.commands.selection_options import add_selection, selection_of
from bridge.commands.taking_options import add_taking, check_taking, messages, undo_of
from bridge.commands.target import NamespaceLogin, add_target, target_of

if TYPE_CHECKING:
    from bridge.remote.namespace import RemoteNamespace

STATES: Final = ("active", "scheduled", "deferred", "dead")


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "purge",
        "remove messages of one state, after asking; what others have locked stays",
        run=run,
        right="Listen on the entity and Send on the entity (of scheduled ones; of all others "
        "Listen alone)",
        examples=(
            "busbridge purge orders --where \"color = 'red'\" --undo red.jsonl",
            "busbridge purge orders --state scheduled --undo scheduled.jsonl --yes",
        ),
    )
    add_path(parser, has_dead_letter=False)
    parser.add_argument(
        "--state", choices=STATES, default="active",
        help="active: those that receivers get; scheduled: those of a queue or a topic that are "
        "not due yet; deferred; dead: those in its dead-letter queue (default: active)",
    )  # fmt: skip
    add_selection(parser, limit="how many to remove at most")
    add_taking(parser)
    add_yes(parser)
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Remove what is meant."""
    from bridge.commands.purging import purge_received
    from bridge.remote.namespace import RemoteNamespace

    check_taking(arguments)
    path = _path(arguments)
    selection = selection_of(arguments)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        if arguments.state == "scheduled":
            return await _purge_scheduled(namespace, target, path, arguments, output)
        if arguments.state == "deferred":
            return await _purge_deferred(namespace, target, path, arguments, output)
        return await purge_received(namespace, target, path, selection, arguments, output)


def _path(arguments: argparse.Namespace) -> str:
    """Return the path of what is purged; WrongInput: it has no messages of this state."""
    from bridge.commands.schedule_options import scheduled_path

    if arguments.state == "scheduled":
        return scheduled_path(arguments.entity)
    return path_in(arguments.entity, is_dead_letter=arguments.state == "dead")


async def _purge_scheduled(
    namespace: RemoteNamespace,
    target: NamespaceLogin,
    path: str,
    arguments: argparse.Namespace,
    output: Output,
) -> int:
    """Write scheduled messages to the undo file, and cancel them by their numbers."""
    from bridge.commands.cancel_run import CancelRun
    from bridge.commands.purging import purge_head
    from bridge.commands.schedule_options import ScheduledSearch
    from bridge.operations.scheduled_selection import ScheduledSelection

    found = selection_of(arguments)
    selection = ScheduledSelection(found.condition, numbers=found.numbers)
    if arguments.dry_run:
        return await dry_run(namespace, path, selection, arguments.limit, output, "cancelled")
    management = await namespace.management(path)
    search = ScheduledSearch(output, management, selection, arguments.limit)
    await search.run()
    if (code := search.looking.end_without("scheduled", "removed")) is not None:
        return code
    output.confirm(f"Removes {messages(len(search.due_ms))} of {path}, scheduled: never enqueued.")
    with undo_of(arguments.undo, purge_head(target, path)) as undo:
        cancelling = CancelRun(
            output,
            management,
            dict(search.due_ms),
            undo=undo,
            rate_per_s=arguments.rate,
            limit=arguments.limit,
        )
        code = await cancelling.run()
    return search.looking.with_failures(code)


async def _purge_deferred(
    namespace: RemoteNamespace,
    target: NamespaceLogin,
    path: str,
    arguments: argparse.Namespace,
    output: Output,
) -> int:
    """Receive deferred messages by their numbers, write them to the undo file, complete them."""
    from bridge.commands.deferred_options import deferred_of
    from bridge.commands.deferred_run import DeferredRun, sessions_by_number
    from bridge.commands.purging import purge_head

    selection = deferred_of(arguments)
    if arguments.dry_run:
        return await dry_run(namespace, path, selection, arguments.limit, output, "removed")
    management = await namespace.management(path)
    found, looking = await sessions_by_number(output, management, selection, arguments.limit)
    if (code := looking.end_without("deferred", "removed")) is not None:
        return code
    output.confirm(f"{messages(len(found))} of {path}, deferred, are removed.")
    with undo_of(arguments.undo, purge_head(target, path)) as undo:
        removing = DeferredRun(
            output,
            namespace,
            path,
            found,
            None,
            done_word="removed",
            doubt="It may be removed, or not.",
            undo=undo,
            rate_per_s=arguments.rate,
            limit=arguments.limit,
        )
        code = await removing.run()
    return looking.with_failures(code)
