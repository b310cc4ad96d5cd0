"""What a way back says of what stays where it is, and how to get it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from bridge.commands.migration.return_settling import SUBSCRIPTIONS
from bridge.commands.output import Output
from bridge.operations.migration.return_choice import ReturnChoice
from bridge.operations.migration.return_difference import NamedNumbers, SeriesDifference

LEFT: Final = (
    ("new", "new at the target, and stay there"),
    ("late", "at the source alone, come behind the copy: they stay"),
    ("scheduled", "scheduled at the source alone: they stay"),
    ("unreachable", "in another state at the target, which they cannot get at the source"),
)
"""Kinds of messages that are not at the source as they are at the target, and what is said."""


class ReturnReport:
    """Says what does not come back, as sentences, and where lines of JSON are written as rows, too.

    Args:
        source, target: the names of their profiles.
        kinds: the kind of each entity of the target, by its path: "queue", "topic" ...
    """

    def __init__(
        self,
        output: Output,
        choice: ReturnChoice,
        source: str,
        target: str,
        kinds: Mapping[str, str],
    ) -> None:
        self._output = output
        self._choice = choice
        self._source, self._target = source, target
        self._kinds = kinds

    def write_choice(self) -> None:
        """Say which entities do not come back, and what of the others' definitions does not."""
        self._output.say_some("stays", self._choice.refused)
        for each in self._choice.refused:
            path, _, text = each.partition(": ")
            self._record({"part": "refused", "entity": path, "text": text})
        found = self._choice.definitions
        self._output.say_some("definition", [f"{each.entity}: {each.text}" for each in found])
        for one in found:
            self._record({
                "part": "definition",
                "level": one.level,
                "entity": one.entity,
                "subject": one.subject,
                "text": one.text,
            })  # fmt: skip

    def write_left(
        self, account: Iterable[tuple[str, SeriesDifference]], *, is_closed: bool
    ) -> None:
        """Say what messages are not at the source as they are at the target, and what to do.

        Args:
            account: what was found of each queue and subscription that comes back.
            is_closed: their entities are disabled at the target; else nothing was changed.
        """
        choice = self._choice
        for path, count in sorted(choice.stranded.items()):
            text = f"the target alone has it: {count:,} messages stay there"
            self._left(path, "at_target_alone", count, text, self._way(path, is_closed=is_closed))
        for path, count in sorted(choice.made_since.items()):
            text = f"it was made when a run had ended: {count:,} messages stay at the target"
            do = f"give --return for it, which brings them to {self._source}, or receive them there"
            self._left(path, "made_since", count, text, do)
        for path, count in sorted(choice.kept.items()):
            text = f"{count:,} messages stay at the target, where it goes on"
            do = f"receive them there, or {self._export(path)} writes them to lines"
            self._left(path, "not_back", count, text, do)
        for path, found in account:
            for name, text in LEFT:
                named: NamedNumbers = getattr(found, name)
                if named.count:
                    shown = ", ".join(map(str, named.numbers))
                    more = ", ..." if named.count > len(named.numbers) else ""
                    do = self._new(path, named, is_closed=is_closed) if name == "new" else ""
                    text = f"{named.count:,} {text}: {shown}{more}"
                    self._left(path, name, named.count, text, do, named.numbers)

    def _way(self, path: str, *, is_closed: bool) -> str:
        """Return how messages come back of an entity that the target alone has."""
        topic, is_below, name = path.partition(SUBSCRIPTIONS)
        if is_closed and is_below:
            return (
                f"receive them there; or {self._export(path)} > FILE, make it at {self._source} as "
                f"it is there, and `busbridge import {path} FILE -n {self._source}`"
            )
        words = f"subscription {topic} {name}" if is_below else f"{self._kinds[path]} {path}"
        return (
            f"make it at {self._source} as it is there (`busbridge create {words} -n "
            f"{self._source}`) and give --return, or receive them there"
        )

    def _new(self, path: str, named: NamedNumbers, *, is_closed: bool) -> str:
        """Return how to get what is new at the target and is not returned."""
        first = min(named.numbers)
        shown = f"{self._export(path, f' --from {first}')}, for dead letters with --dead-letter"
        if not is_closed:
            return f"--return brings them to {self._source}; {shown}, shows them"
        kind = self._kinds[path]
        return (
            f"to read them while nothing receives there: `busbridge update {kind} {path} --status "
            f"SendDisabled -n {self._target}`, then {shown}; then --status Disabled again"
        )

    def _export(self, path: str, options: str = "") -> str:
        return f"`busbridge export {path} -n {self._target}{options}`"

    def _left(
        self,
        path: str,
        what: str,
        count: int,
        text: str,
        do: str,
        numbers: Iterable[int] = (),
    ) -> None:
        self._output.say(f"{path}: {text}{f': {do}' if do else ''}.")
        self._record({
            "part": "left",
            "entity": path,
            "what": what,
            "count": count,
            "numbers": list(numbers),
            "text": text,
            "do": do,
        })  # fmt: skip

    def _record(self, row: dict[str, object]) -> None:
        if not self._output.is_table:
            self._output.record(row)
