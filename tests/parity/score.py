"""What a run of Azure's tests gave: a score a file, and the reason of each failure."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

BEGIN, END = "<!-- score: written by make parity -->", "<!-- end of score -->"
COLUMNS = ("passed", "failed", "xfailed", "xpassed", "skipped")
HEAD = ("file", "passed", "failed", "xfail", "xpass", "skip themselves", "without a server")


@dataclass(frozen=True)
class Case:
    """One run of a test.

    Attributes:
        file: its name without folders.
        test: its name without parameters.
        outcome: `passed`, `failed`, `skipped` (by the test itself), or, where Azure marked the test
            as one that fails, `xfailed` (it did) and `xpassed` (it did not).
        error: what a failed one said.
        is_served: it spoke to a server.
        id: by which its runner runs it again.
        is_second: it failed beside others, and this is what it did alone.
    """

    file: str
    test: str
    outcome: str
    error: str = ""
    is_served: bool = True
    id: str = ""
    is_second: bool = False

    @property
    def counts(self) -> bool:
        """Whether it says something of the server, or did not run."""
        return self.is_served or self.outcome == "skipped"

    @property
    def name(self) -> str:
        """File and test, as reasons name it."""
        return f"{self.file}::{self.test}"


@dataclass(frozen=True)
class Reason:
    """Why tests cannot pass yet, or never will.

    Attributes:
        tests: pattern of `file::test`.
        error: pattern of something in what the test says when it fails. One that fails in another
            way has another reason, or none.
        text: one sentence for the reader of `docs/parity.md`.
        is_certain: the tests always fail; False where a clock decides, which the text says.
    """

    tests: re.Pattern[str]
    error: re.Pattern[str]
    text: str
    is_certain: bool = True

    def fits(self, case: Case) -> bool:
        """Whether it is this failure's reason."""
        is_named = self.tests.fullmatch(case.name) is not None
        return is_named and self.error.search(case.error) is not None


def read_reasons(path: Path) -> list[Reason]:
    """Read `reasons.toml`: the first row that fits a failure says its reason."""
    with path.open("rb") as file:
        rows = tomllib.load(file)["reason"]
    return [
        Reason(
            re.compile(each), re.compile(row["error"]), row["text"], not row.get("sometimes", False)
        )
        for row in rows
        for each in row["tests"]
    ]


def save(cases: Sequence[Case], path: Path) -> None:
    """Keep cases, to be scored again without a run."""
    path.write_text(json.dumps([asdict(each) for each in cases], indent=1))


def load(path: Path) -> list[Case]:
    """Read what `save` has kept."""
    return [Case(**row) for row in json.loads(path.read_text())]


class Score:
    """Of each file how many tests passed, and what did not with its reason."""

    def __init__(self, title: str, cases: Iterable[Case], reasons: Sequence[Reason]) -> None:
        self._title = title
        self._cases = sorted(cases, key=lambda case: (case.file, case.test))
        self._reasons = reasons

    def unexplained(self) -> list[Case]:
        """Return the failures that have no reason."""
        return [case for case in self._failed if self._reason(case) is None]

    def stale(self) -> list[str]:
        """Return the patterns of reasons that no failure has, but for those that clocks decide."""
        used = {self._reason(case) for case in self._failed}
        unused = [each for each in self._reasons if each.is_certain and each not in used]
        return [each.tests.pattern for each in unused]

    def summary(self) -> str:
        """Return the score in one line."""
        counts = Counter(case.outcome for case in self._cases if case.counts)
        others = sum(not case.counts for case in self._cases)
        told = ", ".join(f"{counts[each]} {each}" for each in COLUMNS if counts[each])
        return f"{self._title}: {told}; {others} without a server"

    def report(self) -> str:
        """Return the score in Markdown: a row a file, then each reason with its tests."""
        return f"## {self._title}\n\n{self._table()}\n{self._seconds()}{self._failures()}"

    @property
    def _failed(self) -> list[Case]:
        return [case for case in self._cases if case.outcome == "failed"]

    def _table(self) -> str:
        rows: dict[str, list[Case]] = defaultdict(list)
        for case in self._cases:
            rows[case.file].append(case)
        lines = [_line(HEAD), f"|---|{'---:|' * (len(HEAD) - 1)}\n"]
        lines += [_line([file, *_cells(rows[file])]) for file in sorted(rows)]
        return "".join([*lines, _line(["**all**", *_cells(self._cases)])])

    def _seconds(self) -> str:
        seconds = [case for case in self._cases if case.is_second]
        names = sorted({f"`{case.file}::{case.test.split('/')[0]}`" for case in seconds})
        if not names:
            return ""
        return f"\nPassed alone, after a failure beside others: {', '.join(names)}\n"

    def _failures(self) -> str:
        tests: dict[str, Counter[str]] = defaultdict(Counter)
        for case in self._failed:
            reason = self._reason(case)
            tests[reason.text if reason else "No reason is known."][case.name] += 1
        parts = []
        for text, names in sorted(tests.items(), key=lambda item: -item[1].total()):
            listed = ", ".join(f"`{name}`" for name in sorted(names))
            parts.append(f"\n**{names.total()}: {text}**\n{listed}\n")
        return "".join(parts)

    def _reason(self, case: Case) -> Reason | None:
        return next((each for each in self._reasons if each.fits(case)), None)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _cells(cases: Sequence[Case]) -> list[str]:
    """Count by outcome; last those that ran without a server, with their failures."""
    counted = Counter(case.outcome for case in cases if case.counts)
    others = Counter(case.outcome for case in cases if not case.counts)
    failed = f", {others['failed']} failed" if others["failed"] else ""
    return [*(str(counted[each]) for each in COLUMNS), f"{others.total()}{failed}"]


def write(scores: Sequence[Score], document: Path) -> None:
    """Put scores between their marks in a document."""
    before, rest = document.read_text().split(BEGIN)
    _, after = rest.split(END)
    reports = "\n".join(each.report() for each in scores)
    document.write_text(f"{before}{BEGIN}\n\n{reports}\n{END}{after}")
