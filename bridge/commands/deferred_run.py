"""Receives deferred messages by their numbers, one by one, and does something with each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bridge.commands.clock import now_ms
from bridge.commands.errors import sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.looking import Looking
from bridge.commands.output import Output
from bridge.commands.pace import Pace
from bridge.commands.session_entities import requires_sessions
from bridge.commands.taking_options import go_on, messages
from bridge.model.session_id import fold
from bridge.operations.undo_file import TakenFate, entry_line
from bridge.remote.errors import RemoteError, RemoteLockLost, RemoteNotFound, RemoteRefused
from bridge.remote.outcomes import Abandon, Complete

if TYPE_CHECKING:
    from bridge.commands.undo_writing import UndoFile
    from bridge.operations.selection import MessageSelection
    from bridge.remote.delivery import RemoteDelivery
    from bridge.remote.management import RemoteManagement
    from bridge.remote.message import RemoteMessage
    from bridge.remote.namespace import RemoteNamespace
    from bridge.remote.session_receiver import RemoteSessionReceiver

RENEW_MS: Final = 20_000
"""A session's lock that ends sooner is renewed."""

Handle = Callable[["RemoteDelivery"], Awaitable[None]]
"""Does with a message what stands before its removal; after any error it stays deferred."""


class StaysDeferred(Exception):
    """Error for a message that stays deferred; the text says why.

    Attributes:
        is_last: none behind it is tried.
    """

    def __init__(self, text: str, *, is_last: bool = False) -> None:
        super().__init__(text)
        self.is_last = is_last


async def sessions_by_number(
    output: Output,
    management: RemoteManagement,
    selection: MessageSelection,
    limit: int | None,
) -> tuple[dict[int, str | None], Looking]:
    """Return the messages that are meant, each with its session, and how the search went."""
    found: dict[int, str | None] = {}

    def take(page: Sequence[RemoteMessage]) -> None:
        found.update({int(each.sequence_number or 0): each.session_id for each in page})

    looking = Looking(output, management, selection, limit=limit)
    await looking.run(take, "looking for deferred messages")
    looking.say_failures()
    return found, looking


class DeferredRun:
    """Takes deferred messages out of an entity, one by one.

    Args:
        numbers: the messages, each with its session.
        handle: see `Handle`; what it has done is done before the message is completed. `None`: they
            are only removed.
        done_word: what has become of those that are done, such as "taken".
        doubt: what is said of a message that is handled, and perhaps not removed.
        undo: where each message is written before anything is done with it.
        rate_per_s: messages a second; `None` for any number.
        limit: the `--limit` by which they were found.
    """

    def __init__(
        self,
        output: Output,
        namespace: RemoteNamespace,
        path: str,
        numbers: dict[int, str | None],
        handle: Handle | None,
        *,
        done_word: str,
        doubt: str,
        undo: UndoFile | None = None,
        rate_per_s: float | None = None,
        limit: int | None = None,
    ) -> None:
        self._output = output
        self._namespace = namespace
        self._path = path
        self._numbers = numbers
        self._handle = handle
        self._done_word = done_word
        self._doubt = doubt
        self._undo = undo
        self._pace = Pace(rate_per_s)
        self._limit = limit
        self._done = 0
        self._unsure = 0
        self._failures: list[str] = []
        self._has_sessions = False
        self._held: RemoteSessionReceiver | None = None

    async def run(self) -> int:
        """Take them, session by session, and return the exit code; raises RemoteError."""
        output = self._output
        management = await self._namespace.management(self._path)
        self._has_sessions = await requires_sessions(self._namespace, self._path)
        order = list(self._numbers)
        if self._has_sessions:
            order.sort(key=lambda number: (self._numbers[number] or "", number))
        try:
            with (
                output.interruption.deferred() as asked,
                output.progress(len(order), self._done_word) as bar,
            ):
                for number in order:
                    await self._pace.wait(asked)
                    if asked.is_set():
                        return self._stopped("Stopped.")
                    try:
                        await self._take(management, number)
                    except StaysDeferred as error:
                        self._failures.append(f"message {number}: {error}")
                        if error.is_last:
                            return self._stopped("Stopped.")
                    except (RemoteNotFound, RemoteRefused) as error:
                        self._failures.append(f"message {number}: {sentence_of(error)}")
                    except RemoteError as error:
                        if not self._done and not error.in_doubt:
                            raise
                        return self._stopped(sentence_of(error))
                    except asyncio.CancelledError:  # the second interrupt
                        self._unsure += 1
                        return self._stopped(
                            f"Stopped at once: message {number} is locked until its lock ends. "
                            f"{self._doubt}"
                        )
                    bar.advance()
        finally:
            await self._let_go()
        output.say_some(f"not {self._done_word}", self._failures)
        output.say(f"{messages(self._done)} of {self._path} {self._done_word}.")
        return ExitCode.DIFFERENCES if self._failures else ExitCode.DONE

    async def _take(self, management: RemoteManagement, number: int) -> None:
        """Receive a message, have it handled, and complete it."""
        session_id = self._numbers[number] if self._has_sessions else None
        if session_id is not None:
            await self._hold(session_id)
        (delivery,) = await management.receive_deferred([number], "peek-lock", session_id)
        token = delivery.lock_token
        assert token is not None
        try:
            await self._write(delivery)
            if self._handle is not None:
                await self._handle(delivery)
        except Exception:
            with suppress(RemoteError):  # its lock ends
                await management.settle_deferred([token], Abandon(), session_id)
            raise
        try:
            await management.settle_deferred([token], Complete(), session_id)
        except RemoteError as error:
            self._unsure += 1
            raise StaysDeferred(
                f"{sentence_of(error)} {self._doubt}",
                is_last=not isinstance(error, RemoteNotFound | RemoteLockLost | RemoteRefused),
            ) from error
        self._done += 1
        if self._undo is not None:
            self._undo.mark(TakenFate.REMOVED, [delivery.message])

    async def _write(self, delivery: RemoteDelivery) -> None:
        """Write a message to the undo file; StaysDeferred: the disk does not take it."""
        if self._undo is None:
            return
        try:
            await asyncio.to_thread(self._undo.write, [entry_line(delivery.message)])
        except OSError as error:
            text = f"the undo file cannot be written: {error.strerror}"
            raise StaysDeferred(text, is_last=True) from error

    async def _hold(self, session_id: str) -> None:
        """Hold a session, and no other."""
        if self._held is not None and fold(self._held.session_id) == fold(session_id):
            if self._held.locked_until_ms < now_ms() + RENEW_MS:
                await self._held.renew()
            return
        await self._let_go()
        try:
            self._held = await self._namespace.session_receiver(self._path, session_id)
        except RemoteError as error:
            if error.condition != "com.microsoft:session-cannot-be-locked":
                raise
            raise StaysDeferred(sentence_of(error)) from error

    async def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            with suppress(RemoteError):
                await held.close()

    def _stopped(self, why: str) -> int:
        self._output.say_some(f"not {self._done_word}", self._failures)
        way = go_on(self._limit, self._done + self._unsure)
        self._output.say(f"{why} {messages(self._done)} of {self._path} {self._done_word}.{way}")
        return ExitCode.STOPPED
