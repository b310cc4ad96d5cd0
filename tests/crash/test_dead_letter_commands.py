"""Commands that take dead letters are killed and cut off: nothing is lost, nothing there twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bridge.operations.undo_file import entries
from bridge.testing.process import Bridge
from tests.fixtures.bridge import StartBridge
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]

SEEDS = range(6)
COUNT = 150
BLOWS = 4
WITHIN_S = 300.0


class Shell:
    """The command, in processes of its own, with a bridge's connection string in a variable."""

    def __init__(self, bridge: Bridge, folder: Path) -> None:
        own = {"PLACE": bridge.connection_string, "XDG_CONFIG_HOME": str(folder)}
        self._environment = {**os.environ, **own}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        line = [sys.executable, "-m", "bridge.cli.command", *words]
        return subprocess.Popen(
            [*line, "--connection-string-variable", "PLACE"],
            env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str, given: str = "") -> tuple[int, str, str]:
        """Run a command; return its code and what it said."""
        process = self.start(*words)
        out, err = process.communicate(given, timeout=WITHIN_S)
        assert "Traceback" not in err, err
        return process.returncode, out, err

    def done(self, *words: str, given: str = "") -> list[dict[str, object]]:
        """Run a command that succeeds; return its rows."""
        code, out, err = self.run(*words, given=given)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def bodies(self, *words: str) -> Counter[object]:
        """Return how often each body is in what a command shows."""
        return Counter(each["body"] for each in self.done(*words))


def lines_in(path: Path) -> int:
    """Return how many lines an undo file has."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def strike(chance: random.Random, bridge: Bridge, process: subprocess.Popen[str]) -> str:
    """Kill the command or its bridge, or interrupt it; return which."""
    which = chance.choice(("kill", "interrupt", "bridge"))
    if which == "kill":
        process.kill()
    elif which == "interrupt":
        process.send_signal(signal.SIGINT)
    else:
        bridge.kill()
        bridge.start()
    _, err = process.communicate(timeout=WITHIN_S)
    assert "Traceback" not in err, err
    return which


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_command_takes_is_nowhere_lost_or_twice(
    start_bridge: StartBridge, tmp_path: Path, seed: int
) -> None:
    """The same command goes on behind each blow; every message is moved once, or is removed."""
    chance = random.Random(seed)
    verb = ("resubmit", "purge")[seed % 2]
    bridge = start_bridge()
    shell = Shell(bridge, tmp_path)
    shell.done("create", "queue", "moved", "--lock-duration", "PT5S")
    whole = [f"order {at}" for at in range(COUNT)]
    shell.done("send", "moved", given="".join(f'{{"body": "{each}"}}\n' for each in whole))
    kill = ("--settle", "dead-letter", "--reason", "bad")
    shell.done("receive", "moved", "--count", str(COUNT), "--wait", "60", *kill)
    dead = ("dead-letter", "ls", "moved")
    eventually(lambda: shell.bodies(*dead).total() == COUNT, "all are dead")
    path = tmp_path / "undo.jsonl"
    words = ("dead-letter", verb, "moved", "--undo", str(path))
    words += ("--yes",) if verb == "purge" else ()
    struck = []
    for _ in range(BLOWS):
        target = min(lines_in(path) + chance.randint(1, COUNT // (BLOWS + 2)), COUNT)
        process = shell.start(*words, "--rate", "20", "--wait", "60")
        eventually(lambda target=target: lines_in(path) >= target, f"{target} are written")
        struck.append(strike(chance, bridge, process))
    eventually(
        lambda: shell.run(*words, "--wait", "8")[0] == 0 and not shell.bodies(*dead),
        "nothing is dead any more",
    )
    print(f"{verb}: {struck}")
    _, *rest = path.read_text().splitlines()
    assert {each.message.data.decode() for each in entries(rest)} == set(whole)
    there = shell.bodies("peek", "moved", "--all")
    assert there == (Counter(whole) if verb == "resubmit" else Counter())
