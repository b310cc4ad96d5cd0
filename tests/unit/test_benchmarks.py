"""`make bench` runs every benchmark that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import __main__ as every
from tests.quick import imported

BENCH = Path(every.__file__).parent

REPORTS = {"tests.bench.figure.report", "tests.bench.rabbit.report_each"}

OF_A_RABBITMQ_THAT_RUNS = {"broker_hop"}
"""What is given the address of one, to look at the client's hot path with a profiler."""

OF_NO_FIGURES = {"rabbit"}
"""What reports those of others."""


def test_each_file_that_reports_figures_is_in_the_list() -> None:
    """A file that is missing there would never run, and its floors never be checked."""
    files = {path.stem for path in BENCH.glob("*.py") if is_benchmark(path)}
    assert files - OF_A_RABBITMQ_THAT_RUNS - OF_NO_FIGURES == set(every.BENCHMARKS)


def is_benchmark(path: Path) -> bool:
    """Whether a file prints figures, with their floors."""
    return bool(REPORTS & imported(path.read_text()))


def test_an_unknown_name_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is measured then."""
    assert every.main(["sdk", "sdkk"]) == 2
    assert "there is no 'sdkk'; there are hop, sdk," in capsys.readouterr().out
