"""The score of Azure's own tests: what is counted, what is explained, what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.parity.go_sdk import read_output
from tests.parity.score import BEGIN, END, Case, Reason, Score, load, read_reasons, save, write

CASES = [
    Case("test_queues.py", "test_send", "passed"),
    Case("test_queues.py", "test_send", "failed", "AssertionError: 1 == 2"),
    Case("test_queues.py", "test_perimeter", "skipped", is_served=False),
    Case("test_sessions.py", "test_lock", "failed", "SessionLockLost: too late"),
    Case("test_sessions.py", "test_state", "failed", "SessionLockLost: no state"),
    Case("test_sessions.py", "test_log", "xfailed"),
    Case("test_sessions.py", "test_log", "xpassed"),
    Case("test_sessions.py", "test_text", "passed", is_served=False),
    Case("test_sessions.py", "test_words", "failed", "KeyError: 'x'", is_served=False),
]


def reason(tests: str, error: str = "", *, is_certain: bool = True) -> Reason:
    """A reason with a sentence of its own."""
    return Reason(re.compile(tests), re.compile(error), f"Known of {tests}.", is_certain)


SESSIONS = reason(r"test_sessions\.py::.*")
LOCKS = reason(r".*::test_lock")


def names(cases: list[Case]) -> list[str]:
    """Return what they are called."""
    return [case.name for case in cases]


def test_a_failure_without_a_reason_is_named() -> None:
    """A test counts as failed when one of its runs has failed."""
    assert names(Score("X", CASES, [SESSIONS]).unexplained()) == ["test_queues.py::test_send"]


def test_a_reason_is_that_of_one_error() -> None:
    """A test that fails in another way than its reason says has none, and the reason is stale."""
    other = reason(r"test_sessions\.py::test_lock", "MessageLockLost")
    score = Score(
        "X", CASES, [other, reason(r".*::test_(lock|state|words|send)", "no state|Key|==")]
    )
    assert names(score.unexplained()) == ["test_sessions.py::test_lock"]
    assert score.stale() == [r"test_sessions\.py::test_lock"]


def test_the_first_reason_that_fits_is_the_reason() -> None:
    """The reasons after it have nothing to explain."""
    assert Score("X", CASES, [SESSIONS, LOCKS]).stale() == [r".*::test_lock"]
    assert Score("X", CASES, [LOCKS, SESSIONS]).stale() == []


def test_a_reason_of_tests_that_pass_is_stale() -> None:
    """But not one of tests that fail only at times."""
    passed = [Case("test_mgmt.py", "test_entra", "passed")]
    assert Score("X", passed, [reason(".*::test_entra")]).stale() == [".*::test_entra"]
    assert Score("X", passed, [reason(".*::test_entra", is_certain=False)]).stale() == []


def test_the_report_counts_by_file_and_lists_by_reason() -> None:
    """Tests that speak to no server count apart, as does what Azure marked as failing."""
    report = Score("X", CASES, [SESSIONS]).report()
    assert "| test_queues.py | 1 | 1 | 0 | 0 | 1 | 0 |" in report
    assert "| test_sessions.py | 0 | 2 | 1 | 1 | 0 | 2, 1 failed |" in report
    assert "| **all** | 1 | 3 | 1 | 1 | 1 | 2, 1 failed |" in report
    assert "**3: Known of test_sessions\\.py::.*.**" in report
    assert "`test_sessions.py::test_lock`, `test_sessions.py::test_state`" in report
    assert "**1: No reason is known.**\n`test_queues.py::test_send`" in report


def test_what_passed_alone_is_named() -> None:
    """It failed beside others, which a reader shall know."""
    case = Case("test_queues.py", "test_send/twice", "passed", is_second=True)
    report = Score("X", [case], []).report()
    assert "Passed alone, after a failure beside others: `test_queues.py::test_send`\n" in report


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
    """Saved cases can be scored again."""
    save(CASES, tmp_path / "cases.json")
    assert load(tmp_path / "cases.json") == CASES


@pytest.mark.parametrize("sdk", ["python", "go"])
def test_every_reason_can_be_read(sdk: str) -> None:
    """The patterns compile, each names an error, and each sentence ends."""
    rows = read_reasons(Path(__file__).parents[1] / "parity" / f"reasons_{sdk}.toml")
    assert all(each.text.endswith(".") and each.error.pattern for each in rows)


def go_output(text: str, *, is_ok: bool = False) -> dict[str, str]:
    """Return the outcomes in what `-test.v` printed for `TestA`."""
    read = read_output("TestA", text.splitlines(), is_ok=is_ok)
    return {name: outcome for name, (outcome, _) in read.items()}


def test_the_subtests_of_go_count_and_not_what_holds_them() -> None:
    """Each has its outcome and its own lines."""
    text = """\
=== RUN   TestA
=== RUN   TestA/one
    a_test.go:7: of one
=== RUN   TestA/two
=== RUN   TestA/two/inner
    a_test.go:9: of inner
--- FAIL: TestA (0.10s)
    --- PASS: TestA/one (0.00s)
    --- FAIL: TestA/two (0.00s)
        --- FAIL: TestA/two/inner (0.00s)
FAIL
"""
    assert go_output(text) == {"TestA/one": "passed", "TestA/two/inner": "failed"}
    _, said = read_output("TestA", text.splitlines(), is_ok=False)["TestA/two/inner"]
    assert "of inner" in said
    assert "of one" not in said


def test_a_test_of_go_that_fails_beside_its_subtests_counts() -> None:
    """Else its failure would be lost."""
    text = (
        "=== RUN   TestA\n=== RUN   TestA/one\n--- PASS: TestA/one (0.0s)\n--- FAIL: TestA (0.1s)"
    )
    assert go_output(text) == {"TestA": "failed", "TestA/one": "passed"}


def test_what_go_does_not_judge_has_failed() -> None:
    """A panic ends the process before the test's end is told; a skipped test is no failure."""
    assert go_output("=== RUN   TestA\npanic: oh\n") == {"TestA": "failed"}
    assert go_output("=== RUN   TestA\n--- SKIP: TestA (0.0s)\nPASS", is_ok=True) == {
        "TestA": "skipped"
    }
    assert go_output("=== RUN   TestA\n--- PASS: TestA (0.0s)\npanic: later") == {"TestA": "failed"}
