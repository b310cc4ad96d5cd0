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


@dataclass(frozen=True)
class Case:
    """One run of a test.

    Attributes:
        file: its name without folders.
        test: its name without parameters.
        outcome: `passed`, `skipped` (by the test itself) or `failed`.
    """

    file: str
    test: str
    outcome: str


@dataclass(frozen=True)
class Reason:
    """Why tests cannot pass yet, or never will.

    Attributes:
        tests: pattern of `file::test`.
        text: one sentence for the reader of `docs/parity.md`.
    """

    tests: re.Pattern[str]
    text: str

    def fits(self, case: Case) -> bool:
        """Whether it is this test's reason."""
        return self.tests.fullmatch(f"{case.file}::{case.test}") is not None


def read_reasons(path: Path) -> list[Reason]:
    """Read `reasons.toml`: the first pattern that fits a test says its reason."""
    with path.open("rb") as file:
        rows = tomllib.load(file)["reason"]
    return [Reason(re.compile(each), row["text"]) for row in rows for each in row["tests"]]


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

    def unexplained(self) -> list[str]:
        """Return the tests that failed and have no reason."""
        failed = [case for case in self._cases if case.outcome == "failed"]
        return sorted({f"{each.file}::{each.test}" for each in failed if not self._why(each)})

    def stale(self) -> list[str]:
        """Return the patterns of reasons that no failing test has."""
        failed = [case for case in self._cases if case.outcome == "failed"]
        used = {self._reason(case) for case in failed}
        return [each.tests.pattern for each in self._reasons if each not in used]

    def report(self) -> str:
        """Return the score in Markdown: a row a file, then each reason with its tests."""
        return f"## {self._title}\n\n{self._table()}\n{self._failures()}"

    def _table(self) -> str:
        rows: dict[str, Counter[str]] = defaultdict(Counter)
        for case in self._cases:
            rows[case.file][case.outcome] += 1
            rows["**all**"][case.outcome] += 1
        lines = ["| file | passed | failed | skip themselves |", "|---|---:|---:|---:|"]
        for file in sorted(rows, key=lambda name: (name.startswith("**"), name)):
            count = rows[file]
            lines.append(f"| {file} | {count['passed']} | {count['failed']} | {count['skipped']} |")
        return "\n".join(lines) + "\n"

    def _failures(self) -> str:
        tests: dict[str, Counter[str]] = defaultdict(Counter)
        for case in self._cases:
            if case.outcome == "failed":
                tests[self._why(case) or "No reason is known."][f"{case.file}::{case.test}"] += 1
        parts = []
        for text, names in sorted(tests.items(), key=lambda item: -item[1].total()):
            listed = ", ".join(f"`{name}`" for name in sorted(names))
            parts.append(f"\n**{names.total()}: {text}**\n{listed}\n")
        return "".join(parts)

    def _why(self, case: Case) -> str | None:
        reason = self._reason(case)
        return reason.text if reason is not None else None

    def _reason(self, case: Case) -> Reason | None:
        return next((each for each in self._reasons if each.fits(case)), None)


def write(scores: Sequence[Score], document: Path) -> None:
    """Put scores between their marks in a document."""
    before, rest = document.read_text().split(BEGIN)
    _, after = rest.split(END)
    reports = "\n".join(each.report() for each in scores)
    document.write_text(f"{before}{BEGIN}\n\n{reports}\n{END}{after}")
