"""Looks through the messages of an entity, page by page, and takes none away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from bridge.commands.errors import sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.output import Output

if TYPE_CHECKING:
    from bridge.operations.selection import MessageSelection
    from bridge.remote.management import RemoteManagement
    from bridge.remote.message import RemoteMessage

PAGE: Final = 250
"""Messages that Azure gives for one request."""


class Looking:
    """Peeks until the end, the limit, a signal, or a failure behind the first page.

    Attributes:
        next_number: where to go on.
        looked_at, found: how many were looked at, and how many of them are meant.
        is_stopped: whether a signal or a failure has ended it.
        failures: messages that the condition cannot be held against.
        absent: numbers that were asked for, and that no message has which is meant, in words.
    """

    def __init__(
        self,
        output: Output,
        management: RemoteManagement,
        selection: MessageSelection,
        *,
        first: int = 1,
        limit: int | None = None,
    ) -> None:
        self._output = output
        self._management = management
        self._selection = selection
        self._limit = limit
        self._wanted = set(selection.numbers)
        self._met: dict[int, str] = {}
        self.next_number = max(first, min(self._wanted, default=first))
        self.looked_at = 0
        self.found = 0
        self.is_stopped = False
        self.failures: list[str] = []

    @property
    def absent(self) -> list[str]:
        """Numbers that were asked for, and are not those of messages that are meant, in words.

        While a limit or a stop has left something unseen, only those that were passed.
        """
        is_whole = not self.is_stopped and not self.is_enough
        return [
            self._met.get(number, f"message {number}: there is none of this number")
            for number in sorted(self._wanted)
            if is_whole or number < self.next_number
        ]

    @property
    def is_enough(self) -> bool:
        """Whether as many were found as are asked for."""
        return self._limit is not None and self.found >= self._limit

    async def run(self, take: Callable[[Sequence[RemoteMessage]], None], what: str) -> None:
        """Give what is meant, in order and page by page.

        Args:
            take: gets the messages of a page that are meant.
            what: what is being done, for the progress.

        Raises:
            RemoteError: the first page was refused.
        """
        from bridge.remote.errors import RemoteError

        output = self._output
        with output.interruption.deferred() as asked, output.progress(None, what) as progress:
            last = max(self._wanted, default=None)
            while not self.is_enough and (last is None or self.next_number <= last):
                if asked.is_set():
                    self.is_stopped = True
                    return
                try:
                    page = await self._management.peek(self.next_number, PAGE)
                except RemoteError as error:
                    if not self.looked_at:
                        raise
                    output.say(sentence_of(error))
                    self.is_stopped = True
                    return
                progress.advance(len(page))
                before = self.next_number
                take(self._meant(page))
                if self.next_number <= before:
                    return

    def end_without(self, state: str, done: str) -> int | None:
        """Say that there is nothing to do, and return the exit code; `None`: there is something.

        Args:
            state: of the messages that were looked for, such as "scheduled".
            done: what does not become of them, such as "cancelled".
        """
        if self.is_stopped:
            self._output.say(f"Stopped. Nothing is {done}: give the same command again.")
            return ExitCode.STOPPED
        if self.found:
            return None
        self._output.say(f"{self._management.entity} has no such {state} messages.")
        return self.with_failures(ExitCode.DONE)

    def with_failures(self, code: int) -> int:
        """Return a command's exit code, in which counts what was not found or looked at."""
        is_less = self.failures or self.absent
        return ExitCode.DIFFERENCES if code == ExitCode.DONE and is_less else code

    def say_failures(self) -> None:
        """Say what the condition cannot be held against, and which numbers are not there."""
        self._output.say_some("--where", self.failures)
        self._output.say_some("not found", self.absent)

    def _meant(self, page: Sequence[RemoteMessage]) -> list[RemoteMessage]:
        """Return the messages of a page that are meant, up to the limit."""
        from bridge.model.filters.errors import FilterException

        meant: list[RemoteMessage] = []
        for each in page:
            self.looked_at += 1
            number = int(each.sequence_number or 0)
            self.next_number = max(self.next_number, number + 1)
            try:
                is_meant = self._selection.takes(each)
            except FilterException as error:
                self.failures.append(f"message {number}: {error}")
                self._wanted.discard(number)
                continue
            if number in self._wanted:
                self._met[number] = f"message {number}: it is {each.state}, and not meant"
            if is_meant:
                self._wanted.discard(number)
                meant.append(each)
                self.found += 1
                if self.is_enough:
                    break
        return meant
