"""Azure's tests of the Python SDK, from its source distribution."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fixtures.broker import Broker
from tests.parity import plugin
from tests.parity.score import Case

VERSION = "7.15.0"
TITLE = f"Python: azure-servicebus {VERSION}"
HERE = Path(__file__).parent
LEFT_OUT = ("perf_tests", "unittests", "test_tracing.py")
"""Measurements, and tests that speak to no service."""


def run(broker: Broker, folder: Path, workers: int, only: Sequence[str]) -> list[Case]:
    """Run the tests of all files, or of some; return what became of each."""
    tests, report = _fetch(folder), folder / "report.xml"
    chosen = [path for path in sorted(tests.rglob("test_*.py")) if path.name in only]
    if only and not chosen:
        return []
    pytest = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini")]
    output = ["-q", "--tb=short", "-n", str(workers), f"--junit-xml={report}"]
    left_out = [f"--ignore={tests / name}" for name in LEFT_OUT]
    subprocess.run(
        [
            *(*pytest, "-p", "tests.parity.plugin", "--rootdir", str(tests), *output, *left_out),
            *map(str, chosen or [tests]),
        ],
        cwd=tests,
        env={**os.environ, plugin.RABBITMQ: f"{broker.url} {broker.management_url}"},
        check=False,
    )
    return list(_cases(report))


def _fetch(into: Path) -> Path:
    """Return the folder of the SDK's tests, from its source distribution."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    what = ["--no-deps", "--no-binary", ":all:", f"azure-servicebus=={VERSION}"]
    subprocess.run([*pip, "--dest", str(into), *what], check=True)
    (archive,) = into.glob("azure*servicebus*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="data")
    return next(into.glob("azure*servicebus*/tests"))


def _cases(report: Path) -> Iterator[Case]:
    for case in ElementTree.parse(report).iter("testcase"):
        parts = f"{case.attrib['classname']}.{case.attrib['name']}".split(".")
        file = next(part for part in parts if part.startswith("test_")) + ".py"
        found = {child.tag for child in case}
        outcome = "passed"
        if found & {"failure", "error"}:
            outcome = "failed"
        elif "skipped" in found:
            outcome = "skipped"
        yield Case(file, case.attrib["name"].split("[")[0], outcome)
