"""A long work says how far it is in lines, where standard error is no terminal."""

from __future__ import annotations

import asyncio
import io

import pytest

from bridge.commands import progress_lines
from bridge.commands.output import Output, Progress
from bridge.commands.progress_lines import ProgressLines
from tests.fixtures.waiting import until


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


@pytest.mark.parametrize(
    ("total", "done", "after_s", "line"),
    [
        (100_000, 12_000, 10.0, "copying: 12,000 of 100,000 (12 %), 1,200 a second, 1:13 left"),
        (9_010_000, 9_000, 9.0, "copying: 9,000 of 9,010,000 (0 %), 1,000 a second, 2:30:01 left"),
        (10, 10, 2.0, "copying: 10 of 10 (100 %), 5 a second, 0:00 left"),
        (10, 12, 2.0, "copying: 12 of 10 (120 %), 6 a second, 0:00 left"),
        (None, 3_000, 2.0, "copying: 3,000, 1,500 a second"),
    ],
)  # fmt: skip
def test_a_line_has_the_rate_and_the_time_that_remains(
    total: int | None, done: int, after_s: float, line: str
) -> None:
    """As far as the whole is known."""
    clock, progress = Clock(), Progress(total)
    lines = ProgressLines(progress, "copying", print, clock)
    progress.advance(done)
    clock.now_s += after_s
    assert lines.line() == line


def test_lines_come_now_and_then_while_the_work_comes_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not for each step, none for a work that stands still, and none behind its end."""
    monkeypatch.setattr(progress_lines, "EVERY_S", 0.01)
    stderr = io.StringIO()
    output = Output(stdout=io.StringIO(), stderr=stderr)

    async def said(count: int) -> None:
        await until(lambda: stderr.getvalue().count("\n") >= count)

    async def work() -> None:
        with output.progress(1_000, "copying", in_lines=True) as progress:
            for _ in range(5):
                progress.advance(100)
            await said(1)
            await asyncio.sleep(0.1)
            progress.advance()
            await said(2)
        await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(work(), 60))
    first, second = stderr.getvalue().splitlines()
    assert first.startswith("copying: 500 of 1,000 (50 %), ")
    assert second.startswith("copying: 501 of 1,000 (50 %), ")
    assert "\x1b" not in stderr.getvalue()


def test_short_works_say_nothing() -> None:
    """They ask for no lines."""
    stderr = io.StringIO()
    output = Output(stdout=io.StringIO(), stderr=stderr)
    with output.progress(5, "reading definitions") as progress:
        progress.advance(5)
    assert not stderr.getvalue()
