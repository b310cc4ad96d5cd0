"""Output of a command: data on standard output, everything for people on standard error.

At a terminal data are tables; in a pipe, and with `--json`, each row is one line of JSON. Text of
messages and names can hold anything: at a terminal control characters are shown, never sent.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from bridge.commands.errors import Declined, WrongInput
from bridge.commands.interruption import Interruption
from bridge.commands.progress_lines import ProgressLines
from bridge.commands.terminal import QUIET_S, answer, can_ask, confirmed, is_coloured

if TYPE_CHECKING:  # of the extra `tools`: imported for the first table
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

Row = Mapping[str, object]
"""A row, or a record: values of JSON, times and bytes, by name."""

TEXTS_SAID = 10
"""Texts of a kind that are said, as of messages that were refused."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that would move a terminal's cursor, change its colors, or turn text around."""


class Progress:
    """How far a command has come; see `Output.progress`."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.done = 0
        self._show: Callable[[], None] = lambda: None

    def advance(self, count: int = 1) -> None:
        """Note that so many more are done."""
        self.done += count
        self._show()

    def shown_by(self, show: Callable[[], None]) -> None:
        """Call this after each step."""
        self._show = show


class Output:
    """What a command writes to.

    Args:
        as_json: whether JSON lines are written at a terminal, too.
        is_confirmed: whether `--yes` answers every question.

    Attributes:
        is_table: whether rows become tables.
        interruption: what SIGINT does.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        is_confirmed: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self._stdout = sys.stdout if stdout is None else stdout
        self._stderr = sys.stderr if stderr is None else stderr
        self._is_confirmed = is_confirmed
        self._bar: Live | None = None
        self._table: Live | None = None
        self.is_table = self._stdout.isatty() and not as_json
        self.interruption = Interruption(self.say)

    def table(
        self, rows: Iterable[Row], columns: Sequence[str] = (), *, alarming: Collection[str] = ()
    ) -> None:
        """Write rows.

        Args:
            columns: what a table shows, in order (default: all that the first row has). A line of
                JSON has everything.
            alarming: columns whose numbers above 0 are red.
        """
        if self.is_table:
            self._print(self.drawn(list(rows), columns, alarming=alarming))
            return
        for row in rows:
            self.record(row)

    def record(self, row: Row) -> None:
        """Write one thing: a line of JSON, or its names and values below one another."""
        if not self.is_table:
            self.text(json.dumps(row, ensure_ascii=False, default=_json_value))
            return
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for name, value in row.items():
            table.add_row(Text(_title(name), style="bold"), Text(cell(value)))
        self._print(table)

    def drawn(
        self, rows: Sequence[Row], columns: Sequence[str] = (), *, alarming: Collection[str] = ()
    ) -> Table:
        """Return rows as a table of rich, for a display that changes."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        names = columns or tuple(rows[0] if rows else ())
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in names:
            is_number = any(_is_number(row.get(name)) for row in rows)
            table.add_column(_title(name), justify="right" if is_number else "left")
        for row in rows:
            table.add_row(
                *(
                    Text(cell(row.get(name)), style=_style(row.get(name), name in alarming))
                    for name in names
                )
            )
        return table

    def text(self, text: str) -> None:
        """Write text as it is, with a line end.

        Raises:
            OSError: it cannot be written; the error's file is `the output`.
        """
        try:
            with self._undisturbed(self._stdout):
                print(text, file=self._stdout, flush=True)
        except OSError as error:
            error.filename = "the output"
            raise

    def say(self, text: str) -> None:
        """Write a sentence for people to standard error."""
        if self._table is not None and self._stderr.isatty():
            from rich.text import Text

            self._table.console.print(Text(visible(text)), soft_wrap=True)  # above the table
            return
        with self._undisturbed(self._stderr):
            print(visible(text), file=self._stderr, flush=True)

    def say_some(self, what: str, texts: Sequence[str], count: int | None = None) -> None:
        """Say the first of some texts, each behind what it is about, and count the others.

        Args:
            count: how many there are, where `texts` are the first ones.
        """
        for each in texts[:TEXTS_SAID]:
            self.say(f"{what}: {each}")
        more = (len(texts) if count is None else count) - min(len(texts), TEXTS_SAID)
        if more > 0:
            self.say(f"{what}: {more:,} more")

    def confirm(self, question: str) -> None:
        """Ask before something is destroyed; `--yes` is the answer that scripts give.

        Raises:
            WrongInput: nobody can be asked, and `--yes` is not given.
            Declined: the answer is not yes.
        """
        if self._is_confirmed:
            return
        question = visible(question)
        if not can_ask():
            raise WrongInput(f"{question} There is no terminal to ask at: give --yes.")
        try:
            with self.interruption.raised():
                is_confirmed = confirmed(question)
        except KeyboardInterrupt:
            is_confirmed = False
        if not is_confirmed:
            raise Declined("Nothing was done.")

    def confirm_by_name(self, question: str, name: str, given: str) -> None:
        """Have a name typed before something large is destroyed.

        Args:
            name: what is to be typed.
            given: what was typed on the command line, by `--yes`; "" for nothing.

        Raises:
            WrongInput: another name is given, or none and nobody can be asked.
            Declined: another name is typed.
        """
        if given:
            if given != name:
                raise WrongInput(f"--yes names {given!r}, and the namespace is {name!r}.")
            return
        question = visible(f"{question} Type {name} to go on:")
        if not can_ask():
            raise WrongInput(f"{question} There is no terminal to ask at: give --yes {name}.")
        try:
            with self.interruption.raised():
                typed = answer(question)
        except KeyboardInterrupt:
            typed = ""
        if typed != name:
            raise Declined("Nothing was done.")

    @contextmanager
    def progress(
        self, total: int | None, text: str, *, in_lines: bool = False
    ) -> Iterator[Progress]:
        """Show how far the work is, with the time that remains, once it lasts above a second.

        The bar appears only where standard error is a terminal, below all that is written
        meanwhile, and disappears at the end.

        Args:
            total: the number of steps; None for a number that is not known.
            text: what is being done, such as "reading subscriptions".
            in_lines: elsewhere a line is written every ten seconds: the work may take hours.
        """
        progress = Progress(total)
        if not self._stderr.isatty():
            with ProgressLines(progress, text, self.say) if in_lines else nullcontext():
                yield progress
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        remaining = TimeRemainingColumn(elapsed_when_finished=True)
        console = self._console(self._stderr)
        bar = Bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), remaining,
            console=console, transient=True,
        )  # fmt: skip
        task = bar.add_task(visible(text), total=total)
        progress.shown_by(lambda: bar.update(task, completed=progress.done, total=progress.total))
        later = asyncio.get_running_loop().call_later(QUIET_S, bar.start)
        self._bar = bar.live
        try:
            yield progress
        finally:
            self._bar = None
            later.cancel()
            bar.stop()

    @contextmanager
    def changing(self) -> Iterator[Callable[[Table], None]]:
        """Yield a function that draws a table over the one before; for a terminal.

        It stays below all that is said meanwhile.
        """
        from rich.live import Live

        with Live(
            console=self._console(self._stdout),
            auto_refresh=False,
            redirect_stderr=self._stderr.isatty(),  # a file gets its lines
        ) as live:
            self._table = live
            try:
                yield lambda table: live.update(table, refresh=True)
            finally:
                self._table = None

    @contextmanager
    def _undisturbed(self, stream: TextIO) -> Iterator[None]:
        """Take the bar off the terminal while something else is written there."""
        bar = self._bar
        if bar is None or not bar.is_started or not stream.isatty():
            yield
            return
        bar.stop()
        try:
            yield
        finally:
            bar.start(refresh=True)

    def _print(self, table: Table) -> None:
        """Write a table to standard output."""
        with self._undisturbed(self._stdout):
            self._console(self._stdout).print(table)

    def _console(self, stream: TextIO) -> Console:
        from rich.console import Console

        return Console(file=stream, no_color=not is_coloured(stream), highlight=False)


def visible(text: str) -> str:
    r"""Return a text with its control characters written as `\x1b`; line feed and tab stay."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def cell(value: object) -> str:
    """Return a value as a table shows it."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case datetime():
            return time_text(value)
        case str():
            return visible(value)
    return visible(json.dumps(value, ensure_ascii=False, default=_json_value))


def _json_value(value: object) -> Any:
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="backslashreplace")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def time_text(value: datetime) -> str:
    """Return a time in UTC, to the millisecond."""
    text = value.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _title(name: str) -> str:
    return name.replace("_", " ")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _style(value: object, is_alarming: bool) -> str:
    return "bold red" if is_alarming and isinstance(value, int) and value > 0 else ""
