"""Runs an SDK's scenario program once and keeps what it printed, scenario by scenario."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

COMMON_SCENARIOS = (
    "single_send",
    "batch_send",
    "abandon",
    "abandon_with_properties",
    "dead_letter",
    "dead_letter_without_reason",
    "defer",
    "peek",
    "close_with_unsettled",
    "settle_after_close",
    "renew_lock",
    "lock_lost",
    "schedule",
    "schedule_cancel",
    "cancel_unknown",
    "scheduled_by_property",
    "receive_and_delete",
    "time_to_live",
    "types",
    "large",
    "too_large",
    "wrong_key",
    "unknown_entity",
    "session_accept",
    "session_next",
    "session_state",
    "session_lock",
    "session_defer",
)
"""What every client is asked to do."""


@dataclass(frozen=True)
class Outcome:
    """How one scenario ended."""

    is_ok: bool
    detail: str


def tool(name: str, why: str) -> str:
    """Return the path of a program, or fail with what to install."""
    found = shutil.which(name)
    if found is None:
        raise AssertionError(f"{name} is missing: {why}")
    return found


def build(command: Sequence[str], folder: Path) -> None:
    """Build a scenario program; fail with what the build said."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-4000:]}"


def run_scenarios(
    command: Sequence[str],
    connection_string: str,
    queue: str,
    *,
    timeout_s: int = 400,
    **environment: str,
) -> Mapping[str, Outcome]:
    """Run a scenario program and return the outcome of each of its scenarios."""
    done = subprocess.run(
        [*command, connection_string, queue],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **environment},
    )
    outcomes = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            printed = json.loads(line)
            outcomes[printed["scenario"]] = Outcome(printed["ok"], printed["detail"])
    assert outcomes, f"{command[0]} printed no scenario:\n{done.stdout}\n{done.stderr[-4000:]}"
    return outcomes
