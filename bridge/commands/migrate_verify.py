"""`busbridge migrate verify`: the messages of two namespaces beside each other, by number."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from bridge.commands.errors import CommandError, WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.migration.connection import renumbering_name
from bridge.commands.migration.options import add_renumber, add_sides, sides_of
from bridge.commands.output import Output, Progress
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import NamespaceLogin

if TYPE_CHECKING:
    from bridge.operations.migration.verification import (
        MessageComparison,
        MessageDifference,
        Side,
    )
    from bridge.remote.errors import RemoteRefused
    from bridge.remote.management import RemoteManagement
    from bridge.remote.namespace import RemoteNamespace

OWN_TEXT: Final = "the target alone has it: it is its own, and no difference"

SHOWN_MAX: Final = 1_000
"""Differences that a table shows; lines of JSON have all."""

COLUMNS: Final = ("entity", "queue", "source", "target", "differing")
RENUMBERED_COLUMNS: Final = ("entity", "queue", "source", "target", "own", "differing")
STATES_COLUMNS: Final = ("entity", "compared", "not_compared", "differing")
SHOWN_COLUMNS: Final = {
    "difference": ("entity", "queue", "number", "is_at", "differs"),
    "session": ("entity", "session_id", "is_at", "differs"),
}
"""The columns of tables of differences, by the part that their rows are of."""


def register(verbs: Commands) -> None:
    """Add the command."""
    from bridge.operations.migration.verification import MESSAGE_PARTS

    parser = add_command(
        verbs,
        "verify",
        "compare the messages of two namespaces by a peek at all: counts by state, and a digest of "
        "each message by its number; it changes nothing",
        run=run,
        right="Manage on both namespaces, which has Listen on their entities",
        examples=(
            "busbridge migrate verify --from prod --to local",
            "busbridge migrate verify --from prod --to local orders --leave-out delivery_count",
        ),
    )
    add_sides(parser)
    parser.add_argument(
        "--leave-out", action="append", choices=MESSAGE_PARTS, default=[],
        help="what is not compared; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--session-states", action="store_true",
        help="compare the states of sessions, too: each session is locked at both sides while its "
        "state is read, and one that somebody holds is named",
    )  # fmt: skip
    add_renumber(
        parser,
        "compare what a run with --renumber has copied, by repl-sequence; other messages and "
        "session states of the target are its own",
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Write counts and differences; DIFFERENCES when there are any."""
    source, target = sides_of(arguments)
    async with AsyncExitStack() as stack:
        both = [await _Reader.of(each, stack) for each in (source, target)]
        with output.progress(None, "reading entities") as progress:
            kinds = [await each.kinds(progress) for each in both]
        topics = _meant(kinds, arguments.entity)
        if not topics:
            raise WrongInput(f"Neither {source.name!r} nor {target.name!r} has such an entity.")
        renumbered_by = renumbering_name(source) if arguments.renumber else ""
        verification = _Verification(both, arguments.leave_out, output, renumbered_by)
        with output.interruption.deferred() as asked:
            for path, is_topic in topics.items():
                is_open = await verification.compare(path, is_topic, asked)
                if arguments.session_states and not is_topic and is_open:
                    await verification.compare_states(path, asked)
                if asked.is_set():
                    output.say("Stopped: what is behind this was not compared.")
                    return ExitCode.STOPPED
    verification.write()
    return ExitCode.DIFFERENCES if verification.differing else ExitCode.DONE


def _meant(kinds: Sequence[dict[str, str]], patterns: Sequence[str]) -> dict[str, bool]:
    """Return the paths that are meant, of both sides, each with whether it is a topic at one.

    The queues that a migration makes for itself are none of them.
    """
    from bridge.commands.migration.sides import chosen
    from bridge.operations.migration.run_mark import OWN_PREFIX

    spelled = {
        path.lower(): path
        for each in reversed(kinds)
        for path in each
        if not path.lower().startswith(OWN_PREFIX)
    }
    topics = {path.lower() for each in kinds for path, kind in each.items() if kind == "Topic"}
    return {
        spelled[path]: path in topics for path in sorted(chosen(list(spelled.values()), patterns))
    }


class _Reader:
    """Reads one side."""

    def __init__(self, login: NamespaceLogin, namespace: RemoteNamespace) -> None:
        self._login = login
        self._namespace = namespace

    @classmethod
    async def of(cls, login: NamespaceLogin, stack: AsyncExitStack) -> _Reader:
        """Return the reader of a namespace, which the stack closes."""
        from bridge.remote.namespace import RemoteNamespace

        namespace = RemoteNamespace(login.address, login.credential)
        return cls(login, await stack.enter_async_context(namespace))

    async def kinds(self, progress: Progress) -> dict[str, str]:
        """Return the kind of each entity by its path."""
        from bridge.commands.migration.sides import SideReading
        from bridge.remote.administration import RemoteAdministration

        login = self._login
        async with RemoteAdministration(login.address, login.credential) as administration:
            reading = SideReading(administration, progress)
            await reading.side()
        return reading.kinds

    @property
    def login(self) -> NamespaceLogin:
        """Its profile."""
        return self._login

    @property
    def namespace(self) -> RemoteNamespace:
        """The namespace."""
        return self._namespace

    def management(self, path: str) -> RemoteManagement:
        """Return the operations of an entity."""
        return self._namespace.management_of(path)


class _Verification:
    """Compares entity by entity.

    Args:
        left_out: parts of messages that are not compared.
        renumbered_by: the run whose copies have new numbers; "": they have their own.

    Attributes:
        differing: how many messages differ, states of sessions, and entities that only one side
            has; and sessions and entities that cannot be compared. What a target has beside copies
            with new numbers is its own, and no difference.
    """

    def __init__(
        self, both: Sequence[_Reader], left_out: Sequence[str], output: Output, renumbered_by: str
    ) -> None:
        self._both = both
        self._renumbered_by = renumbered_by
        self._left_out = left_out
        self._output = output
        self._rows: list[dict[str, object]] = []
        self._shown: list[dict[str, object]] = []
        self._states: list[dict[str, object]] = []
        self._not_compared: list[dict[str, object]] = []
        self._own = Counter[str]()
        self.differing = 0

    async def compare(self, path: str, is_topic: bool, asked: asyncio.Event) -> bool:
        """Compare the messages of an entity, write what differs, and return whether they show.

        Raises:
            CommandError: a side shows its messages in no order.
            RemoteError: a namespace refuses, or does not answer.
        """
        from bridge.commands.hidden_entity import DISABLED
        from bridge.commands.migration.peeking import places
        from bridge.remote.errors import RemoteRefused

        for place, is_dead in places(path, is_topic=is_topic):
            with self._output.progress(None, f"comparing {place}") as progress:
                try:
                    await self._compare(path, place, is_dead, asked, progress)
                except RemoteRefused as error:
                    if error.condition != DISABLED:
                        raise
                    await self._note_disabled(path, error)
                    return False
        return True

    async def _note_disabled(self, path: str, error: RemoteRefused) -> None:
        """Say why the messages of an entity do not show, and what to do."""
        from bridge.commands.hidden_entity import why_hidden

        source, target = self._both
        text = await why_hidden(path, error, source.login, target.login, target.namespace)
        self.differing += 1
        self._output.say(f"{path}: {text}.")
        self._not_compared.append({"part": "not_compared", "entity": path, "text": text})

    async def compare_states(self, path: str, asked: asyncio.Event) -> None:
        """Compare the states of an entity's sessions, if it has some.

        Raises:
            RemoteError: a namespace refuses, or does not answer.
        """
        from bridge.commands.migration.states import compared_states
        from bridge.commands.session_entities import requires_sessions
        from bridge.remote.errors import RemoteNotFound

        namespaces = [each.namespace for each in self._both]
        for namespace in namespaces:
            try:
                if not await requires_sessions(namespace, path):
                    return
            except RemoteNotFound:  # which is a difference already
                return
        with self._output.progress(None, f"reading states of {path}") as progress:
            found = await compared_states(namespaces, path, asked, lambda: progress.advance())
        self._output.say_some("not compared", found.held)
        differences = [
            each
            for each in found.differences
            if "source" in each.has_state or not self._renumbered_by
        ]
        self.differing += len(differences) + len(found.held)
        for each in differences:
            self._show({
                "part": "session",
                "entity": path,
                "session_id": each.session_id,
                "is_at": list(each.has_state),
                "differs": ["session_state"],
            })  # fmt: skip
        self._states.append({
            "part": "session_states",
            "entity": path,
            "compared": found.sessions,
            "not_compared": len(found.held),
            "differing": len(differences),
        })  # fmt: skip

    async def _compare(
        self, path: str, place: str, is_dead: bool, asked: asyncio.Event, progress: Progress
    ) -> None:
        from bridge.commands.migration.peeking import pages
        from bridge.operations.migration.copy_effects import CopyPlace
        from bridge.operations.migration.renumbered_comparison import CopiesShown
        from bridge.operations.migration.verification import (
            SIDES,
            MessageComparison,
            OutOfOrder,
            fingerprint,
        )
        from bridge.remote.errors import RemoteNotFound

        comparison = MessageComparison(self._left_out)
        copy_place = CopyPlace(path=place, is_dead=is_dead, renumbered_by=self._renumbered_by)
        copies = CopiesShown(copy_place)
        managements = [each.management(place) for each in self._both]
        read = {
            side: pages(management, asked)
            for side, management in zip(SIDES, managements, strict=True)
        }
        missing: list[Side] = []
        while (side := comparison.wants) is not None and not asked.is_set():
            try:
                page = await anext(read[side], None) or ()
            except RemoteNotFound:
                missing.append(side)
                page = ()
            progress.advance(len(page))
            if side == "target" and self._renumbered_by:
                seen = copies.fingerprints(page)
                if page and not seen:
                    continue
            else:
                seen = [fingerprint(each, is_dead=is_dead) for each in page]
            try:
                for found in comparison.add(side, seen):
                    self._note(path, is_dead, found)
            except OutOfOrder as error:
                raise CommandError(f"{place}: {error}: it cannot be compared by number.") from None
        for management in managements:
            await management.close()
        if self._renumbered_by and "source" in missing:
            missing.remove("source")
            self._own[path] += copies.own
        self._count(path, is_dead, comparison, missing)
        if self._renumbered_by:
            self._rows[-1]["own"] = copies.own

    def _note(self, path: str, is_dead: bool, found: MessageDifference) -> None:
        row: dict[str, object] = {
            "part": "difference",
            "entity": path,
            "queue": _queue(is_dead),
            "number": found.number,
            "is_at": list(found.is_at),
            "differs": list(found.parts),
        }
        self._show(row)

    def _show(self, row: dict[str, object]) -> None:
        if not self._output.is_table:
            self._output.record(row)
        elif len(self._shown) < SHOWN_MAX:
            self._shown.append(row)

    def _count(
        self, path: str, is_dead: bool, comparison: MessageComparison, missing: Sequence[Side]
    ) -> None:
        self.differing += comparison.differing + len(missing)
        self._rows.append({
            "part": "entity",
            "entity": path,
            "queue": _queue(is_dead),
            **{side: dict(counts) for side, counts in comparison.counts.items()},
            "missing_at": list(missing),
            "differing": comparison.differing,
        })  # fmt: skip

    def write(self) -> None:
        """Write the counts, and at a terminal the differences."""
        output = self._output
        if not output.is_table:
            own = [
                {"part": "own", "entity": path, "messages": count, "text": OWN_TEXT}
                for path, count in self._own.items()
            ]
            output.table([*self._rows, *self._states, *own, *self._not_compared])
        else:
            counted = RENUMBERED_COLUMNS if self._renumbered_by else COLUMNS
            output.table([_readable(row) for row in self._rows], counted, alarming=("differing",))
            for part, columns in SHOWN_COLUMNS.items():
                shown = [{**row, **_texts(row)} for row in self._shown if row["part"] == part]
                if shown:
                    output.table(shown, columns)
            if self._states:
                output.table(self._states, STATES_COLUMNS, alarming=("differing", "not_compared"))
        for path, count in self._own.items():
            output.say(f"{path}: {OWN_TEXT} ({count:,} messages).")
        total = f"{self.differing:,} differences"
        output.say(f"{'1 difference' if self.differing == 1 else total}. Nothing was changed.")


def _queue(is_dead: bool) -> str:
    return "dead letters" if is_dead else "messages"


def _readable(row: dict[str, object]) -> dict[str, object]:
    """Return a row whose counts are words."""
    missing = row["missing_at"]
    assert isinstance(missing, list)
    words = {}
    for side in ("source", "target"):
        counts = row[side]
        assert isinstance(counts, dict)
        shown = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in counts.items())
        words[side] = "not there" if side in missing else shown or "none"
    return {**row, **words}


def _texts(row: dict[str, object]) -> dict[str, str]:
    texts = {}
    for name in ("is_at", "differs"):
        value = row[name]
        assert isinstance(value, list)
        texts[name] = ", ".join(value)
    return texts
