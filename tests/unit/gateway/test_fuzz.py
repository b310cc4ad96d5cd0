"""Mutated frames and the gateway: a short run of the program in `tests/soak`, and a long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import fuzz_hostile
from tests.soak.fuzz_gateway import SEED, fuzz
from tests.unit.wire.amqp10 import hostile

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.long)])
async def test_mutated_frames(count: int) -> None:
    """They raise nothing, and many conversations survive theirs."""
    report = await fuzz(count, SEED)

    assert report.mutated >= count
    assert report.survived > report.conversations / 20
    assert report.sent > 10 * report.conversations


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_a_million_mutated_frames() -> None:
    """They raise nothing; in a process of its own, whose memory grows by less than 100 MB."""
    program = [sys.executable, "-m", "tests.soak.fuzz_gateway", "--frames", "1000000"]

    subprocess.run(program, cwd=ROOT, stdin=subprocess.DEVNULL, check=True, timeout=1_700)


@pytest.mark.parametrize("count", [500, pytest.param(2_000, marks=pytest.mark.long)])
async def test_frames_of_hostile_structure(count: int) -> None:
    """Frames of every hostile shape stall nobody, and take ten times their size at most.

    The bound on time is generous here: it parts what is slow from what is quadratic.
    """
    costs = await fuzz_hostile.fuzz(count, SEED)

    assert costs.frames >= count
    assert costs.shapes >= set(hostile.SHAPES)
    assert costs.stall_s < 20 * fuzz_hostile.STALL_S_MAX, costs.slowest
    assert costs.traced
    assert costs.memory <= fuzz_hostile.MEMORY_FACTOR_MAX, costs.largest


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_a_million_frames_of_hostile_structure() -> None:
    """No frame takes 100 ms, nor ten times its size in memory."""
    program = [sys.executable, "-m", "tests.soak.fuzz_hostile", "--frames", "1000000"]

    subprocess.run(program, cwd=ROOT, stdin=subprocess.DEVNULL, check=True, timeout=3_500)
