"""Cancels scheduled messages by their numbers, each written to the undo file before."""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING, Final

from bridge.commands.cancelling import Cancelled, cancel
from bridge.commands.errors import sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output
from bridge.commands.pace import Pace
from bridge.commands.taking_options import go_on, messages
from bridge.operations.undo_file import TakenFate, entry_line
from bridge.remote.errors import RemoteError, RemoteRefused

if TYPE_CHECKING:
    from bridge.commands.undo_writing import UndoFile
    from bridge.remote.management import RemoteManagement
    from bridge.remote.message import RemoteMessage

PAGE: Final = 250
"""Messages that are written together, at most."""

_WORDS = {
    "not scheduled": "it is not scheduled; it may have been enqueued before",
    "unsure": "the connection ended meanwhile, and it is gone: cancelled, or enqueued",
}


class _Unwritten(Exception):
    """Error for an undo file that the disk does not take; the text says why."""


class CancelRun:
    """Cancels messages one by one, and says of each what became of it.

    Args:
        due_ms: when each is due, UTC ms, by its number, in order; `None`: it is not known.
        undo: where they are written, as they are then, before they are cancelled.
        rate_per_s: messages a second; `None` for any number.
        limit: the `--limit` by which they were found.
    """

    def __init__(
        self,
        output: Output,
        management: RemoteManagement,
        due_ms: dict[int, int | None],
        *,
        undo: UndoFile | None = None,
        rate_per_s: float | None = None,
        limit: int | None = None,
    ) -> None:
        self._output = output
        self._management = management
        self._due_ms = due_ms
        self._undo = undo
        self._pace = Pace(rate_per_s)
        self._limit = limit
        self._page = PAGE if rate_per_s is None else max(1, min(PAGE, ceil(rate_per_s)))
        self._written: dict[int, RemoteMessage] = {}
        self._done = 0
        self._others = 0

    async def run(self) -> int:
        """Cancel them, and return the exit code; raises RemoteError."""
        try:
            return await self._run()
        finally:
            if self._undo is not None:  # those that are not tried any more
                self._undo.mark(TakenFate.LEFT, self._written.values())

    async def _run(self) -> int:
        output = self._output
        with (
            output.interruption.deferred() as asked,
            output.progress(len(self._due_ms), "cancelling") as bar,
        ):
            for number, due in self._due_ms.items():
                await self._pace.wait(asked)
                if asked.is_set():
                    return self._stopped("Stopped.")
                try:
                    found = await self._cancel(number, due)
                    said: str = found.value
                except _Unwritten as error:
                    return self._stopped(f"The undo file cannot be written: {error}.")
                except RemoteError as error:
                    if isinstance(error, RemoteRefused) and not error.retryable:
                        found, said = Cancelled.UNSURE, sentence_of(error)
                    elif not self._done and not self._others and not error.in_doubt:
                        raise
                    else:
                        doubt = f" {number} may be cancelled, or not." if error.in_doubt else ""
                        text = f"{sentence_of(error)}{doubt}"
                        return self._stopped(text, is_in_doubt=error.in_doubt)
                except asyncio.CancelledError:  # the second interrupt
                    text = f"Stopped at once: {number} may be cancelled, or not."
                    return self._stopped(text, is_in_doubt=True)
                bar.advance()
                if not output.is_table:
                    output.record({"sequence_number": number, "outcome": said})
                if found is Cancelled.CANCELLED:
                    self._done += 1
                    continue
                self._others += 1
                output.say(f"message {number}: {_WORDS.get(said, said)}")
        output.say(f"Cancelled {messages(self._done)} of {self._management.entity}.")
        return ExitCode.DIFFERENCES if self._others else ExitCode.DONE

    async def _cancel(self, number: int, due_ms: int | None) -> Cancelled:
        """Cancel a message that is written, if it is to be; raises RemoteError."""
        if self._undo is None:
            return await cancel(self._management, number, due_ms)
        if number not in self._written:
            await self._write(number, self._undo)
        message = self._written.pop(number, None)
        if message is None:
            return Cancelled.NOT_SCHEDULED
        found = await cancel(self._management, number, due_ms)
        if found is not Cancelled.UNSURE:
            fate = TakenFate.REMOVED if found is Cancelled.CANCELLED else TakenFate.LEFT
            await asyncio.to_thread(self._undo.mark, fate, [message])
        return found

    async def _write(self, first: int, undo: UndoFile) -> None:
        """Write those that are meant of a page, as they are scheduled now, from a number on."""
        found = {
            int(each.sequence_number or 0): each
            for each in await self._management.peek(first, self._page)
            if each.state == "scheduled" and each.sequence_number in self._due_ms
        }
        if first in found:
            try:
                await asyncio.to_thread(undo.write, map(entry_line, found.values()))
            except OSError as error:
                raise _Unwritten(error.strerror) from error
            self._written = found

    def _stopped(self, why: str, *, is_in_doubt: bool = False) -> int:
        of = self._management.entity
        way = go_on(self._limit, self._done + is_in_doubt)
        self._output.say(f"{why} Cancelled {messages(self._done)} of {of}.{way}")
        return ExitCode.STOPPED
