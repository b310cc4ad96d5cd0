"""No two commands of a migration work at once; one that was killed stands in nobody's way."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bridge.operations.migration.run_mark import LEASE_PREFIX
from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of, send
from tests.acceptance.test_migrate_run import BEGIN, Run, killed, marks, snapshot, there
from tests.acceptance.two_bridges import MigrateCommands
from tests.fixtures.waiting import eventually

QUEUES: dict[str, dict[str, Any]] = {"one": {}, "other": {}}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}
WAITS = ("migrate", "run", "--from", "here", "--to", "there", "--yes", "--still", "300", "one")
ENDS_S = 40.0
"""A lease of 10 s, and the command itself."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def run(profiles: None, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command; the profiles `here` and `there` are the two bridges."""
    return Run(capsys)


@pytest.fixture
def at_work(bridges: tuple[Bridge, Bridge], run: Run) -> Iterator[subprocess.Popen[str]]:
    """A run that watches the source for long."""
    with client_of(bridges[0]) as client:
        send(client, "one", "1")
    eventually(lambda: bool(snapshot(bridges[0], "one")["one"]), "it is there")
    process = subprocess.Popen([sys.executable, "-c", BEGIN, *WAITS], text=True)
    yield process
    killed(process)


def test_a_second_command_says_who_is_at_work_and_a_killed_one_stands_in_nobodys_way(
    bridges: tuple[Bridge, Bridge],
    run: Run,
    at_work: subprocess.Popen[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whichever command it is, and of whichever entities: nothing is changed by it."""
    finish = MigrateCommands(capsys)

    eventually(lambda: bool(marks(bridges[1], LEASE_PREFIX)), "the first one has begun")
    for said in (run("--yes", "other"), finish.said("finish", "one", "--yes", "x")):
        assert said.code == 1
        assert "`busbridge migrate run` of " in said.err
        assert f", process {at_work.pid}, since 20" in said.err
        assert "Wait until it has ended, or end it" in said.err
    assert not there(bridges[1], "other")
    killed(at_work)
    began_s = time.monotonic()
    said = run("--yes", "one", "other")
    assert said.code == 0, said.err
    assert time.monotonic() - began_s < ENDS_S
