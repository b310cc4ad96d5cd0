"""Shows which messages a command would take, and does nothing with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.taking_options import messages

if TYPE_CHECKING:
    from bridge.operations.selection import MessageSelection
    from bridge.remote.namespace import RemoteNamespace


async def dry_run(
    namespace: RemoteNamespace,
    path: str,
    selection: MessageSelection,
    limit: int | None,
    output: Output,
    done: str,
) -> int:
    """Show which messages are meant, and return the exit code.

    Args:
        limit: how many there are at most; `None` for any number.
        done: what would become of them, such as "removed".
    """
    from bridge.commands.looking import Looking
    from bridge.commands.shown_messages import write

    management = await namespace.management(path)
    looking = Looking(output, management, selection, limit=limit)
    await looking.run(lambda found: write(output, found, is_full=False), "looking")
    looking.say_failures()
    seen = f"{looking.looked_at:,} were looked at"
    output.say(f"{messages(looking.found)} of {path} would be {done}; {seen}.")
    if looking.is_stopped:
        return ExitCode.STOPPED
    return looking.with_failures(ExitCode.DONE)
