"""Takes messages out of an entity for a command, from the receiver to the sentence at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.commands.clock import now_ms
from bridge.commands.errors import sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import DEAD_LETTER
from bridge.commands.output import Output
from bridge.commands.taking_options import say_ended
from bridge.operations.taking_account import TakingAccount
from bridge.operations.taking_effects import TakingEnd, TakingEnded

if TYPE_CHECKING:
    from bridge.commands.taking_run import Judge, Judged
    from bridge.commands.undo_writing import UndoFile
    from bridge.operations.selection import MessageSelection
    from bridge.operations.taking_rules import TakingRules
    from bridge.relay.running.outlet import Outlet
    from bridge.remote.delivery import RemoteDelivery
    from bridge.remote.namespace import RemoteNamespace
    from bridge.remote.receiver import RemoteReceiver


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
    selection: MessageSelection | None = None,
    outlet: Outlet | None = None,
    undo: Callable[[], AbstractContextManager[UndoFile | None]] = nullcontext,
    sessions: Mapping[str, int] | None = None,
) -> int:
    """Take what is wanted, say what has become of it, and return the exit code.

    Args:
        path: the entity.
        judge, outlet, wait_s: see `TakingRun`.
        doing: what is being done, for the progress, such as "sending".
        done: what has become of those that were taken, such as "sent to orders".
        selection: what is meant: of dead letters it is taken by number where the namespace can do
            that.
        undo: opens the undo file, when the entity has let itself be received from.
        sessions: of an entity that requires sessions: how many are taken of each session, one
            session after the other. One that another receiver holds is left, and named.

    Raises:
        WrongInput: the undo file cannot be used.
        RemoteError: the entity cannot be received from.
    """
    from bridge.commands.taking_run import TakingRun
    from bridge.commands.taking_sources import ReceiverSource, source_of
    from bridge.relay.running.judgement import number_of
    from bridge.relay.running.session_lock import SessionLock
    from bridge.remote.errors import RemoteError
    from bridge.remote.session_receiver import RemoteSessionReceiver

    receivers = _Receivers(namespace, path, sessions)
    receiver = await receivers.next()
    management = await namespace.management(path)
    account, ended = TakingAccount(), TakingEnded(TakingEnd.DONE, "")
    unmet = set() if selection is None else set(selection.numbers)

    async def noting(delivery: RemoteDelivery) -> Judged:
        unmet.discard(number_of(delivery))
        return await judge(delivery)

    taking: TakingRun | None = None
    rest: list[str] = []
    is_numbered = sessions is None and path.lower().endswith(DEAD_LETTER.lower())
    with (
        undo() as file,
        output.interruption.deferred() as asked,
        output.progress(rules.limit, doing) as progress,
    ):
        while receiver is not None and ended.end is TakingEnd.DONE:
            lock = None
            source = (
                await source_of(management, receiver, selection)
                if is_numbered
                else ReceiverSource(receiver)
            )
            if isinstance(receiver, RemoteSessionReceiver):
                lock = SessionLock(receiver, now_ms, lambda _: None)
            taking = TakingRun(
                source,
                management,
                replace(rules, limit=receivers.limit(rules.limit, account.taken)),
                noting,
                outlet=outlet,
                undo=file,
                wait_s=wait_s,
                progress=progress,
                lock=lock,
                before=taking,
            )
            account = taking.machine.account
            try:
                ended = await taking.run(asked)
            finally:
                with suppress(RemoteError):
                    await (source.close() if lock is None else lock.release())
            if rules.limit is not None and account.taken >= rules.limit:
                unmet.clear()  # there was no need to look for them
                break
            rest = source.rest()
            unmet = {each for each in unmet if not source.is_named(each)}
            if ended.end is TakingEnd.DONE:
                try:
                    receiver = await receivers.next()
                except RemoteError as error:
                    ended = TakingEnded(TakingEnd.LOST, str(error))
    output.say_some("not taken", receivers.refusals)
    if ended.end is TakingEnd.DONE:
        output.say_some(
            "not found",
            [
                f"message {each}: there is none of this number, or somebody else has locked it"
                for each in sorted(unmet)
            ],
        )
    code = say_ended(
        output,
        ended,
        account,
        done=done,
        entity=path,
        last_number=0 if taking is None else taking.last_number,
        later=0 if taking is None else len(taking.later),
        limit=rules.limit,
        rest=rest,
    )
    is_less = receivers.refusals or unmet
    return ExitCode.DIFFERENCES if code == ExitCode.DONE and is_less else code


class _Receivers:
    """The receivers of an entity: one, or one of each session.

    Attributes:
        refusals: the sessions that are another's, in words.
    """

    def __init__(
        self, namespace: RemoteNamespace, path: str, sessions: Mapping[str, int] | None
    ) -> None:
        self._namespace = namespace
        self._path = path
        self._left = None if sessions is None else list(sessions.items())
        self._is_first = True
        self._count: int | None = None
        self.refusals: list[str] = []

    def limit(self, limit: int | None, taken: int) -> int | None:
        """Return how many may be taken until the next receiver's turn.

        Args:
            limit: how many may be taken of all; `None` for any number.
            taken: how many are taken of those before.
        """
        if self._count is None:
            return limit
        return taken + self._count if limit is None else min(limit, taken + self._count)

    async def next(self) -> RemoteReceiver | None:
        """Return the next receiver, attached; `None`: there are no more. Raises RemoteError."""
        from bridge.relay.running.session_lock import CANNOT_BE_LOCKED
        from bridge.remote.errors import RemoteError

        is_first, self._is_first = self._is_first, False
        if self._left is None:
            return await self._namespace.receiver(self._path) if is_first else None
        while self._left:
            session_id, self._count = self._left.pop(0)
            try:
                return await self._namespace.session_receiver(self._path, session_id)
            except RemoteError as error:
                if error.condition != CANNOT_BE_LOCKED:
                    raise
                self.refusals.append(f"session {session_id!r}: {sentence_of(error)}")
        return None
