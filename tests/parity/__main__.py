"""Runs Azure's own tests of its SDKs against a bridge, and scores each file.

    python -m tests.parity [--sdk python go] [--only FILE ...] [--scored]

The tests are those that Azure publishes, and run unmodified. A test that fails has to have a reason
in `reasons_SDK.toml` that fits what it says; one without runs once more, alone, and when it fails
again the run has failed. So it has when a reason fits no failure, unless only some files were run.
The score goes into `docs/parity.md`; what was not run keeps that of its last run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bridge.broker.node.folder import PLUGINS
from bridge.broker.node.installation import Installation
from tests.brokers.node import Node
from tests.fixtures.broker import Broker
from tests.parity import go_sdk, python_sdk
from tests.parity.score import Case, Score, load, read_reasons, save, write

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "parity"
DOCUMENT = HERE.parents[1] / "docs" / "parity.md"
AGAIN_MAX = 40
"""When more have failed, a clock or a busy machine is not why."""

Run = Callable[[Broker, Path, int, Sequence[str], Sequence[str]], list[Case]]
SDKS: dict[str, tuple[str, Run]] = {
    "python": (python_sdk.TITLE, python_sdk.run),
    "go": (go_sdk.TITLE, go_sdk.run),
}


@contextmanager
def _rabbitmq(tree: Path | None) -> Iterator[Broker]:
    installation = Installation.below(tree) if tree else Installation.find()
    if installation is None:
        raise SystemExit("parity: RabbitMQ is not installed here (make setup)")
    with tempfile.TemporaryDirectory(prefix="busbridge-parity-") as folder:
        node = Node(installation, Path(folder), plugins=PLUGINS)
        node.start()
        try:
            yield Broker(node.url, node.management_url, node)
        finally:
            node.close()


def _run(options: argparse.Namespace) -> None:
    """Run the tests; files that are not asked for keep what became of them last time."""
    # Side by side: most tests of Python's sleep, and one alone takes eleven minutes.
    with _rabbitmq(options.rabbitmq) as broker, ThreadPoolExecutor(len(options.sdk)) as pool:
        list(pool.map(lambda sdk: _run_one(sdk, broker, options), options.sdk))


def _run_one(sdk: str, broker: Broker, options: argparse.Namespace) -> None:
    folder, kept = BUILD / sdk, _kept(sdk)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cases = _judged(sdk, broker, folder, options)
    others = load(kept) if options.only and kept.exists() else []
    save([*cases, *(each for each in others if each.file not in options.only)], kept)


def _judged(sdk: str, broker: Broker, folder: Path, options: argparse.Namespace) -> list[Case]:
    """Run an SDK's tests; those that fail without a reason twice, the second time alone."""
    title, run = SDKS[sdk]
    began_s = time.monotonic()
    cases = run(broker, folder, options.workers, options.only, ())
    ids = sorted({case.id for case in _scored(sdk, cases).unexplained()})
    print(f"parity: {title}: {time.monotonic() - began_s:.0f} s; again, alone: {len(ids)}")
    if not ids or len(ids) > AGAIN_MAX:
        return cases
    seconds = run(broker, folder, 1, (), ids)
    print(f"parity: {title}: {time.monotonic() - began_s:.0f} s with those")
    judged = {case.id for case in seconds}
    firsts = [case for case in cases if case.id not in judged]
    return [*firsts, *(replace(case, is_second=case.outcome == "passed") for case in seconds)]


def _scored(sdk: str, cases: Sequence[Case]) -> Score:
    return Score(SDKS[sdk][0], cases, read_reasons(HERE / f"reasons_{sdk}.toml"))


def _kept(sdk: str) -> Path:
    return BUILD / f"{sdk}.json"


def _complaints(sdk: str, score: Score, *, is_whole: bool) -> list[str]:
    """Say what is wrong with a score: failures without a reason, and reasons without a failure."""
    wrong = []
    for case in score.unexplained():
        wrong.append(f"{sdk}: failed, and no reason is known: {case.name}\n{case.error[-1500:]}")
    stale = [f"{sdk}: a reason without a failure: {pattern}" for pattern in score.stale()]
    if not is_whole:
        for line in stale:
            print(f"parity: {line}", file=sys.stderr)
        return wrong
    return wrong + stale


def main() -> int:
    """Run and score; return 1 when a failure has no reason, or a reason no failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("--sdk", nargs="+", default=list(SDKS), choices=SDKS, help="of all")
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE", help="names of files")
    parser.add_argument("--workers", type=int, default=6, metavar="COUNT", help="[%(default)s]")
    parser.add_argument("--rabbitmq", type=Path, metavar="FOLDER", help="an unpacked RabbitMQ")
    parser.add_argument("--scored", action="store_true", help="score the last run again")
    options = parser.parse_args()
    if not options.scored:
        _run(options)
    scores = {sdk: _scored(sdk, load(_kept(sdk))) for sdk in SDKS if _kept(sdk).exists()}
    wrong = []
    for sdk, score in scores.items():
        if sdk in options.sdk:
            wrong += _complaints(sdk, score, is_whole=not options.only)
    if len(scores) == len(SDKS):
        write(list(scores.values()), DOCUMENT)
    for score in scores.values():
        print(score.report())
    for line in wrong:
        print(f"parity: {line}", file=sys.stderr)
    summaries = "; ".join(score.summary() for score in scores.values())
    print(f"parity: {summaries}; {len(wrong)} wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
