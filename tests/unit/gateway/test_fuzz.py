"""Mutated frames and the gateway: a short run of the program in `tests/soak`, and a long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.fuzz_gateway import SEED, fuzz

ROOT = Path(__file__).parents[3]


async def test_mutated_frames() -> None:
    """20,000 mutated frames raise nothing, and many conversations survive theirs."""
    report = await fuzz(20_000, SEED)

    assert report.mutated >= 20_000
    assert report.survived > report.conversations / 20
    assert report.sent > 10 * report.conversations


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_million_mutated_frames() -> None:
    """They raise nothing; in a process of its own, whose memory grows by less than 100 MB."""
    program = [sys.executable, "-m", "tests.soak.fuzz_gateway", "--frames", "1000000"]

    subprocess.run(program, cwd=ROOT, stdin=subprocess.DEVNULL, check=True, timeout=1_700)
