"""Removes messages that receivers get: active ones, and dead letters."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from bridge.commands.clock import now_ms
from bridge.commands.dry_run import dry_run
from bridge.commands.errors import sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import is_dead_letter_path
from bridge.commands.output import Output
from bridge.commands.session_entities import requires_sessions
from bridge.commands.taking import take
from bridge.commands.taking_options import go_on, messages, rules_of, undo_of
from bridge.commands.target import NamespaceLogin

if TYPE_CHECKING:
    from bridge.commands.taking_run import Judged
    from bridge.operations.selection import MessageSelection
    from bridge.operations.undo_file import UndoHead
    from bridge.remote.delivery import RemoteDelivery
    from bridge.remote.message import RemoteMessage
    from bridge.remote.namespace import RemoteNamespace

AT_ONCE: Final = 4_000
"""Messages of one batch delete (Azure's bound)."""


def purge_head(target: NamespaceLogin, path: str) -> UndoHead:
    """Return the first line of the undo file of a purge that begins now."""
    from bridge.operations.undo_file import UndoHead

    return UndoHead(
        verb="purge", namespace=target.address.namespace, entity=path, began_ms=now_ms()
    )


async def purge_received(
    namespace: RemoteNamespace,
    target: NamespaceLogin,
    path: str,
    selection: MessageSelection,
    arguments: argparse.Namespace,
    output: Output,
) -> int:
    """Remove what is meant after asking, by batch delete where it is everything.

    Args:
        selection: what is meant of the messages that a receiver gets.
        arguments: with those of `add_taking`, and `limit`.
    """
    peeked = replace(selection, states=frozenset({"active"}))
    if arguments.dry_run:
        return await dry_run(namespace, path, peeked, arguments.limit, output, "removed")
    sessions = None
    if not is_dead_letter_path(path) and await requires_sessions(namespace, path):
        sessions = await _sessions(namespace, path, peeked, arguments.limit, output)
        if sessions is None:
            output.say("Stopped. Nothing is removed: give the same command again.")
            return ExitCode.STOPPED
    is_dead = is_dead_letter_path(path)
    every = "All dead letters" if is_dead else "All active messages"
    which = every if selection.is_everything else "The messages that are meant"
    limit = "" if arguments.limit is None else f", {arguments.limit:,} at most,"
    stay = "" if is_dead else "; scheduled and deferred ones stay"
    output.confirm(f"{which}{limit} are removed from {path}{stay}.")
    is_whole = selection.is_everything and arguments.undo is None and arguments.rate is None
    if is_whole and sessions is None:
        code = await _deleted(namespace, path, arguments, output)
        if code is not None:
            return code
    return await _purge(namespace, target, path, selection, sessions, arguments, output)


async def _sessions(
    namespace: RemoteNamespace,
    path: str,
    selection: MessageSelection,
    limit: int | None,
    output: Output,
) -> dict[str, int] | None:
    """Return how many messages are meant in each session; `None`: the search was stopped."""
    from bridge.commands.looking import Looking
    from bridge.model.session_id import fold

    spelt: dict[str, str] = {}
    found: dict[str, int] = {}

    def take_page(page: Sequence[RemoteMessage]) -> None:
        for each in page:
            session_id = each.session_id or ""
            name = spelt.setdefault(fold(session_id), session_id)
            found[name] = found.get(name, 0) + 1

    looking = Looking(output, await namespace.management(path), selection, limit=limit)
    await looking.run(take_page, "looking for sessions")
    output.say_some("--where", looking.failures)
    return None if looking.is_stopped else found


async def _deleted(
    namespace: RemoteNamespace, path: str, arguments: argparse.Namespace, output: Output
) -> int | None:
    """Remove all messages by batch delete; `None`: the namespace does not know it."""
    from bridge.remote.errors import RemoteError, RemoteRefused

    management = await namespace.management(path)
    before_ms, done = now_ms(), 0
    limit: int | None = arguments.limit
    with output.interruption.deferred() as asked, output.progress(limit, "removing") as progress:
        while not asked.is_set() and (limit is None or done < limit):
            count = AT_ONCE if limit is None else min(AT_ONCE, limit - done)
            try:
                found = await management.batch_delete(count, before_ms)
            except RemoteError as error:
                if isinstance(error, RemoteRefused) and not done and not error.in_doubt:
                    return None
                if not done:
                    raise
                doubt = " Some more may be removed." if error.in_doubt else ""
                output.say(
                    f"{sentence_of(error)} Removed {messages(done)} from {path}.{doubt}"
                    f"{go_on(limit, done)}"
                )
                return ExitCode.STOPPED
            done += found
            progress.advance(found)
            if not found:
                break
        is_stopped = asked.is_set()
    if not output.is_table:
        output.record({"removed": done})
    if is_stopped:
        output.say(f"Stopped. Removed {messages(done)} from {path}.{go_on(limit, done)}")
        return ExitCode.STOPPED
    output.say(f"Removed {messages(done)} from {path}.")
    return ExitCode.DONE


async def _purge(
    namespace: RemoteNamespace,
    target: NamespaceLogin,
    path: str,
    selection: MessageSelection,
    sessions: dict[str, int] | None,
    arguments: argparse.Namespace,
    output: Output,
) -> int:
    """Take what is meant, and complete it."""
    from bridge.commands.taking_run import Judged
    from bridge.model.filters.errors import FilterException

    async def judge(delivery: RemoteDelivery) -> Judged:
        try:
            return Judged(selection.takes(delivery.message))
        except FilterException as error:
            return Judged(False, str(error))

    return await take(
        output,
        namespace,
        path,
        rules_of(arguments, is_moving=False),
        judge,
        selection=selection,
        wait_s=arguments.wait,
        doing="removing",
        done="removed",
        undo=partial(undo_of, arguments.undo, purge_head(target, path)),
        sessions=sessions,
    )
