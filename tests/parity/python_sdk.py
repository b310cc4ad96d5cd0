"""Azure's tests of the Python SDK, from its source distribution."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.fixtures.broker import Broker
from tests.parity import plugin
from tests.parity.score import Case

VERSION = "7.15.0"
TITLE = f"Python: azure-servicebus {VERSION}"
HERE = Path(__file__).parent
LEFT_OUT = ("perf_tests", "unittests", "test_tracing.py")
"""Measurements, and tests that speak to no service."""


def run(
    broker: Broker, folder: Path, workers: int, only: Sequence[str], ids: Sequence[str] = ()
) -> list[Case]:
    """Run the tests of all files, of some, or those with these ids; return what became of each."""
    tests = _fetch(folder)
    chosen = [str(path) for path in sorted(tests.rglob("test_*.py")) if path.name in only]
    if ids:
        return [case for each in ids for case in _run(broker, folder, 0, [each])]
    return _run(broker, folder, workers, chosen or [str(tests)]) if chosen or not only else []


def _run(broker: Broker, folder: Path, workers: int, chosen: Sequence[str]) -> list[Case]:
    """Run pytest once; return what became of each test."""
    tests, record = _fetch(folder), folder / "record.json"
    pytest = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini")]
    output = ["-q", "--tb=short", "--durations", "10"]
    # A worker that sleeps must not hold a test that others could run.
    spread = ["-n", str(workers), "--maxschedchunk", "1"]
    left_out = [f"--ignore={tests / name}" for name in LEFT_OUT]
    record.unlink(missing_ok=True)
    # Into a file: a failure that has a reason is no failure of the run, and would read like one.
    with (folder / "pytest.log").open("a") as log:
        subprocess.run(
            [
                *(*pytest, "-p", "tests.parity.plugin", "--rootdir", str(tests)),
                *(*output, *spread, *left_out),
                *chosen,
            ],
            cwd=tests,
            env={
                **os.environ,
                plugin.RABBITMQ: f"{broker.url} {broker.management_url}",
                plugin.FOLDER: str(folder),
            },
            check=False,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return [Case(**row) for row in json.loads(record.read_text())]


def _fetch(into: Path) -> Path:
    """Return the folder of the SDK's tests, from its source distribution."""
    if not (found := list(into.glob("azure*servicebus*/tests"))):
        package = "azure-servicebus"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        what = ["--no-deps", "--no-binary", package, f"{package}=={VERSION}"]
        subprocess.run([*pip, "--dest", str(into), *what], check=True)
        (archive,) = into.glob("azure*servicebus*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(into, filter="data")
        found = list(into.glob("azure*servicebus*/tests"))
    return found[0]
