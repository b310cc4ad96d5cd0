"""A stop that does not end: the process says what it waits for, and is gone."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

STUCK = """
import asyncio, contextlib, logging, sys, threading
from bridge.cli.overdue import Overdue
from bridge.cli.process import run_to_end
from bridge.cli.stopping import Stopping

logging.basicConfig(format="%(levelname)s %(message)s")

async def goes_on():
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

async def begins_others():
    try:
        await asyncio.sleep(3600)
    finally:
        asyncio.create_task(begins_others(), name="begun again")

async def stays_in_a_thread():
    await asyncio.to_thread(threading.Event().wait)

async def main(work):
    stopping = Stopping(Overdue(8.0))
    stopping.started()
    task = asyncio.create_task(work(), name="the work")
    print("ready", flush=True)
    await stopping.wait()
    await stopping.end(task)
    await stopping.end_rest()

sys.exit(run_to_end(main(globals()[sys.argv[1]])))
"""


def stopped(work: str) -> tuple[int, str]:
    """Run a process with work that does not end, and stop it; return code and standard error."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STUCK), work],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    try:
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, said


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        (
            "goes_on",
            1,
            ["WARNING serve.stop_stuck tasks='the work' in", "ERROR serve.stop_overdue"],
        ),
        ("stays_in_a_thread", 1, ["ERROR serve.stop_overdue seconds=8 tasks=", "in python3"]),
        ("begins_others", 0, []),
    ],
)
def test_a_stop_has_an_end(work: str, code: int, said: list[str]) -> None:
    """What ignores its end, or sits in a thread, is named; the process is gone in time."""
    ended, text = stopped(work)
    assert ended == code, text
    assert [each for each in said if each not in text] == [], text
    assert ("'the work' in" in text) == (work == "goes_on"), text
