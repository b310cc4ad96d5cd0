"""Takes messages out of an entity for a command, from the receiver to the sentence at the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from bridge.commands.output import Output
from bridge.commands.taking_options import say_ended

if TYPE_CHECKING:
    from bridge.commands.taking_run import Judge
    from bridge.commands.undo_writing import UndoFile
    from bridge.operations.taking_rules import TakingRules
    from bridge.relay.running.outlet import Outlet
    from bridge.remote.namespace import RemoteNamespace


async def take(
    output: Output,
    namespace: RemoteNamespace,
    path: str,
    rules: TakingRules,
    judge: Judge,
    *,
    wait_s: float,
    doing: str,
    done: str,
    outlet: Outlet | None = None,
    undo: Callable[[], AbstractContextManager[UndoFile | None]] = nullcontext,
) -> int:
    """Take what is wanted, say what has become of it, and return the exit code.

    Args:
        path: the entity.
        judge, outlet, wait_s: see `TakingRun`.
        doing: what is being done, for the progress, such as "sending".
        done: what has become of those that were taken, such as "sent to orders".
        undo: opens the undo file, when the entity has let itself be received from.

    Raises:
        WrongInput: the undo file cannot be used.
        RemoteError: the entity cannot be received from.
    """
    from bridge.commands.taking_run import TakingRun
    from bridge.remote.errors import RemoteError

    receiver = await namespace.receiver(path)
    management = await namespace.management(path)
    with (
        undo() as file,
        output.interruption.deferred() as asked,
        output.progress(rules.limit, doing) as progress,
    ):
        taking = TakingRun(
            receiver,
            management,
            rules,
            judge,
            outlet=outlet,
            undo=file,
            wait_s=wait_s,
            progress=progress,
        )
        try:
            ended = await taking.run(asked)
        finally:
            with suppress(RemoteError):
                await receiver.close()
    return say_ended(
        output,
        ended,
        taking.machine.account,
        done=done,
        entity=path,
        last_number=taking.last_number,
        later=len(taking.later),
    )
