"""Runs Azure's own tests of its SDKs against a bridge, and scores each file.

    python -m tests.parity [--sdk python go] [--only FILE ...] [--scored]

The tests are those that Azure publishes, and run unmodified. A test that fails has to have a reason
in `reasons_SDK.toml`; one without makes the run fail. Reasons that no failure needs are named. The
score goes into `docs/parity.md`; what was not run keeps that of its last run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
Run = Callable[[Broker, Path, int, Sequence[str]], list[Case]]
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
    with _rabbitmq(options.rabbitmq) as broker:
        for sdk in options.sdk:
            folder, kept = BUILD / sdk, _kept(sdk)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            cases = SDKS[sdk][1](broker, folder, options.workers, options.only)
            others = load(kept) if options.only and kept.exists() else []
            save([*cases, *(each for each in others if each.file not in options.only)], kept)


def _kept(sdk: str) -> Path:
    return BUILD / f"{sdk}.json"


def _score(sdk: str) -> Score:
    """Return an SDK's score; say what is wrong with it."""
    title, _ = SDKS[sdk]
    score = Score(title, load(_kept(sdk)), read_reasons(HERE / f"reasons_{sdk}.toml"))
    print(score.report())
    for test in score.unexplained():
        print(f"parity: failed, and no reason is known: {test}", file=sys.stderr)
    for pattern in score.stale():
        print(f"parity: a reason without a failure: {pattern}", file=sys.stderr)
    return score


def main() -> int:
    """Run and score; return 1 when a failure has no reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("--sdk", nargs="+", default=list(SDKS), choices=SDKS, help="of all")
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE", help="names of files")
    parser.add_argument("--workers", type=int, default=4, metavar="COUNT", help="[%(default)s]")
    parser.add_argument("--rabbitmq", type=Path, metavar="FOLDER", help="an unpacked RabbitMQ")
    parser.add_argument("--scored", action="store_true", help="score the last run again")
    options = parser.parse_args()
    if not options.scored:
        _run(options)
    scores = [_score(sdk) for sdk in SDKS if _kept(sdk).exists()]
    if len(scores) == len(SDKS):
        write(scores, DOCUMENT)
    return 1 if any(each.unexplained() for each in scores) else 0


if __name__ == "__main__":
    sys.exit(main())
