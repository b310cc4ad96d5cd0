"""The score of Azure's own tests: what is counted, what is explained, what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.parity.score import BEGIN, END, Case, Reason, Score, load, read_reasons, save, write

CASES = [
    Case("test_queues.py", "test_send", "passed"),
    Case("test_queues.py", "test_send", "failed"),
    Case("test_queues.py", "test_perimeter", "skipped"),
    Case("test_sessions.py", "test_lock", "failed"),
    Case("test_sessions.py", "test_state", "failed"),
]
SESSIONS = Reason(re.compile(r"test_sessions\.py::.*"), "Sessions are not built.")
LOCKS = Reason(re.compile(r".*::test_lock"), "Locks are not built.")
ENTRA = Reason(re.compile(r".*::test_entra"), "Only Azure issues tokens of Entra.")


def test_a_failure_without_a_reason_is_named() -> None:
    """A test of which one run failed has failed, whatever its other runs did."""
    assert Score("X", CASES, [SESSIONS]).unexplained() == ["test_queues.py::test_send"]


def test_the_first_reason_that_fits_is_the_reason() -> None:
    """Those after it have nothing to explain."""
    assert Score("X", CASES, [SESSIONS, LOCKS]).stale() == [r".*::test_lock"]
    assert Score("X", CASES, [LOCKS, SESSIONS]).stale() == []


def test_a_reason_of_tests_that_pass_is_stale() -> None:
    """It is named, so that it can go."""
    passed = [Case("test_mgmt.py", "test_entra", "passed")]
    assert Score("X", passed, [ENTRA]).stale() == [r".*::test_entra"]


def test_the_report_counts_by_file_and_lists_by_reason() -> None:
    """Each run of a parametrized test counts; a failure without a reason says so."""
    report = Score("X", CASES, [SESSIONS]).report()
    assert "| test_queues.py | 1 | 1 | 1 |" in report
    assert "| test_sessions.py | 0 | 2 | 0 |" in report
    assert "| **all** | 1 | 3 | 1 |" in report
    assert "**2: Sessions are not built.**" in report
    assert "`test_sessions.py::test_lock`, `test_sessions.py::test_state`" in report
    assert "**1: No reason is known.**\n`test_queues.py::test_send`" in report


def test_only_what_is_between_the_marks_is_written_anew(tmp_path: Path) -> None:
    """Twice gives the same as once."""
    page = tmp_path / "parity.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write([Score("X", CASES, [])], page)
    once = page.read_text()
    write([Score("X", CASES, [])], page)
    assert page.read_text() == once
    assert once.startswith(f"before\n{BEGIN}\n\n## X\n")
    assert once.endswith(f"{END}\nafter\n")
    assert "old" not in once


def test_cases_are_kept(tmp_path: Path) -> None:
    """What is saved can be scored again."""
    save(CASES, tmp_path / "cases.json")
    assert load(tmp_path / "cases.json") == CASES


@pytest.mark.parametrize("sdk", ["python", "go"])
def test_every_reason_can_be_read(sdk: str) -> None:
    """The patterns compile, and each sentence ends."""
    folder = Path(__file__).parents[1] / "parity"
    assert all(each.text.endswith(".") for each in read_reasons(folder / f"reasons_{sdk}.toml"))
