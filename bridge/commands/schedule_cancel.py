"""`busbridge schedule cancel`: scheduled messages are removed before they are enqueued."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bridge.commands.errors import sentence_of
from bridge.commands.exit_codes import ExitCode
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

    path, selection = scheduled_path(arguments), scheduled_of(arguments)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        due_ms: dict[int, int | None] = {}
        failures = 0
        if selection.is_numbers_alone:
            due_ms.update(dict.fromkeys(sorted(selection.numbers)[: arguments.limit]))
        else:
            search = ScheduledSearch(output, management, selection, arguments.limit)
            await search.run()
            if search.looking.is_stopped:
                output.say("Stopped. Nothing is cancelled: give the same command again.")
                return ExitCode.STOPPED
            due_ms.update(search.due_ms)
            failures = len(search.looking.failures)
        if not due_ms:
            output.say(f"{path} has no such scheduled messages.")
            return ExitCode.DIFFERENCES if failures else ExitCode.DONE
        output.confirm(f"Removes {messages(len(due_ms))} of {path}, scheduled: never enqueued.")
        code = await _cancelled(management, due_ms, path, output)
        return ExitCode.DIFFERENCES if code == ExitCode.DONE and failures else code


async def _cancelled(
    management: RemoteManagement, due_ms: dict[int, int | None], path: str, output: Output
) -> int:
    """Cancel messages, and say what became of them."""
    from bridge.commands.cancelling import Cancelled, cancel
    from bridge.remote.errors import RemoteError, RemoteRefused

    done, others = 0, 0
    with (
        output.interruption.deferred() as asked,
        output.progress(len(due_ms), "cancelling") as bar,
    ):
        for number, due in due_ms.items():
            if asked.is_set():
                return _stopped(output, "Stopped.", done, path)
            try:
                found = await cancel(management, number, due)
                said: str = found.value
            except RemoteError as error:
                if isinstance(error, RemoteRefused) and not error.retryable:
                    found, said = Cancelled.UNSURE, sentence_of(error)
                elif not done and not others and not error.in_doubt:
                    raise
                else:
                    doubt = f" {number} may be cancelled, or not." if error.in_doubt else ""
                    return _stopped(output, f"{sentence_of(error)}{doubt}", done, path)
            bar.advance()
            if not output.is_table:
                output.record({"sequence_number": number, "outcome": said})
            if found is Cancelled.CANCELLED:
                done += 1
                continue
            others += 1
            output.say(f"message {number}: {_WORDS.get(said, said)}")
    output.say(f"Cancelled {messages(done)} of {path}.")
    return ExitCode.DIFFERENCES if others else ExitCode.DONE


_WORDS = {
    "not scheduled": "it is not scheduled; it may have been enqueued before",
    "unsure": "the connection ended meanwhile, and it is gone: cancelled, or enqueued",
}


def _stopped(output: Output, why: str, done: int, path: str) -> int:
    output.say(f"{why} Cancelled {messages(done)} of {path}. Give the same command to go on.")
    return ExitCode.STOPPED
