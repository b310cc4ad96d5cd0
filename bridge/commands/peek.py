"""`busbridge peek`: messages of a queue or a subscription, which stay where they are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bridge.commands.errors import WrongInput, sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import add_path, path_in
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.operations.condition import Condition
    from bridge.remote.management import RemoteManagement
    from bridge.remote.message import RemoteMessage

COUNT = 20
PAGE = 250
"""Messages that Azure gives for one request."""

FAILURES_SAID = 3


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "peek",
        "show messages; they are not locked, and not counted as delivered",
        run=run,
        right="Listen on the entity",
        examples=(
            "busbridge peek orders --where \"color = 'red' AND body('$.total') > 100\"",
            "busbridge peek events audit --dead-letter --all > dead.jsonl",
        ),
    )
    add_path(parser)
    parser.add_argument(
        "--from", type=int, default=1, metavar="NUMBER", dest="first",
        help="the sequence number to begin with (default: the first)",
    )  # fmt: skip
    many = parser.add_mutually_exclusive_group()
    many.add_argument(
        "--count", "-c", type=int, default=COUNT, metavar="N",
        help=f"how many to show at most (default: {COUNT})",
    )  # fmt: skip
    many.add_argument("--all", action="store_true", help="show all there are")
    parser.add_argument(
        "--state", action="append", choices=("active", "deferred", "scheduled"),
        help="only messages in this state; may be given again",
    )  # fmt: skip
    parser.add_argument("--session", metavar="ID", help="only messages of this session")
    parser.add_argument(
        "--where", metavar="SQL",
        help="only messages for which this is true: a subscription's filter, with sys. and your "
        "own properties, and body('$.a.b') for a body of JSON",
    )  # fmt: skip
    parser.add_argument(
        "--full", action="store_true", help="everything of each message, not a table"
    )
    add_target(parser)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Show messages, page by page."""
    from bridge.remote.namespace import RemoteNamespace

    path = path_in(arguments.entity, is_dead_letter=arguments.dead_letter)
    search = _Search(arguments, output)
    target = target_of(arguments)
    async with RemoteNamespace(target.address, target.credential) as namespace:
        return await search.run(await namespace.management(path))


class _Search:
    """Peeks until enough messages were shown."""

    def __init__(self, arguments: argparse.Namespace, output: Output) -> None:
        from bridge.commands.shown_messages import ShownMessages

        self._arguments = arguments
        self._output = output
        self._where = _where(arguments.where)
        self._next: int = arguments.first
        self._shown = ShownMessages(output, is_full=arguments.full)
        self._left = None if arguments.all else arguments.count
        self._peeked = 0
        self._failures: list[str] = []
        if self._left is not None and self._left < 1:
            raise WrongInput("--count is at least 1.")

    async def run(self, management: RemoteManagement) -> int:
        """Show the messages, and return the exit code."""
        from bridge.remote.errors import RemoteError

        is_whole, has_stopped = False, False
        output = self._output
        with output.interruption.deferred() as asked, output.progress(None, "peeking") as progress:
            while not is_whole and self._left != 0:
                if asked.is_set():
                    has_stopped = True
                    break
                try:
                    page = await management.peek(self._next, self._page(), self._arguments.session)
                except RemoteError as error:
                    if not self._peeked:
                        raise
                    output.say(sentence_of(error))
                    has_stopped = True
                    break
                progress.advance(len(page))
                is_whole = not self._take(page)
        self._shown.end()
        self._say_failures()
        if has_stopped:
            output.say(f"Stopped; go on with --from {self._next}.")
            return ExitCode.STOPPED
        if not is_whole and not self._arguments.all:
            output.say(f"There may be more: go on with --from {self._next}, or give --all.")
        elif not self._peeked:
            output.say(self._none())
        elif output.is_table and self._arguments.where:
            output.say(f"{self._peeked:,} messages were looked at.")
        return ExitCode.DIFFERENCES if self._failures else ExitCode.DONE

    def _none(self) -> str:
        """Say that there is nothing; a topic answers a peek too, and never has a message."""
        (first, *others), text = self._arguments.entity, "There are no messages"
        is_topic = not others and "/" not in first and not self._arguments.dead_letter
        return f"{text}; those of a topic are in its subscriptions." if is_topic else f"{text}."

    def _say_failures(self) -> None:
        for each in self._failures[:FAILURES_SAID]:
            self._output.say(each)
        if len(self._failures) > FAILURES_SAID:
            rest = len(self._failures) - FAILURES_SAID
            self._output.say(
                "Nor against one other." if rest == 1 else f"Nor against {rest:,} others."
            )

    def _page(self) -> int:
        """Return how many to ask for: no more than are shown, if all are."""
        is_filtered = self._where is not None or self._arguments.state
        return PAGE if is_filtered or self._left is None else min(PAGE, self._left)

    def _take(self, page: list[RemoteMessage]) -> bool:
        """Show what is wanted of a page; return whether there may be another one."""
        before = self._next
        wanted = []
        for each in page:
            self._peeked += 1
            self._next = max(self._next, int(each.sequence_number or 0) + 1)
            if self._is_wanted(each):
                wanted.append(each)
                if self._left is not None:
                    self._left -= 1
                    if not self._left:
                        break
        self._shown.add(wanted)
        return self._next > before

    def _is_wanted(self, message: RemoteMessage) -> bool:
        from bridge.model.filters.errors import FilterException

        states: list[str] | None = self._arguments.state
        if states and message.state not in states:
            return False
        try:
            return self._where is None or self._where.takes(message)
        except FilterException as error:
            self._failures.append(
                f"--where cannot be held against message {message.sequence_number}: {error}"
            )
            return False


def _where(text: str | None) -> Condition | None:
    from uuid import uuid4

    from bridge.model.filters.errors import InvalidRule
    from bridge.operations.condition import Condition

    try:
        return None if text is None else Condition(text, uuid4)
    except InvalidRule as error:
        raise WrongInput(f"--where: {error}") from None
