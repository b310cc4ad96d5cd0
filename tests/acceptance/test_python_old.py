"""An older client, azure-servicebus 7.14.3, in an environment of its own, against the bridge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.driver import HERE, Outcome, run_scenarios

ENTITIES = {"python-old": {"LockDuration": "PT5S", "MaxDeliveryCount": 10}}

PYTHON = Path(".venv-7.14/bin/python")
"""Made by `make setup` (see Makefile): azure-servicebus 7.14.3 and nothing else."""

SCENARIOS = (
    "single_send",
    "batch_send",
    "abandon",
    "dead_letter",
    "defer",
    "close_with_unsettled",
    "renew_lock",
    "lock_lost",
    "schedule",
    "schedule_cancel",
    "cancel_unknown",
    "receive_and_delete",
    "time_to_live",
    "large",
    "wrong_key",
    "unknown_entity",
)


pytestmark = pytest.mark.sdks


@pytest.fixture(scope="module")
def outcomes(bridge: Any, pytestconfig: pytest.Config) -> Mapping[str, Outcome]:
    """What each scenario of the program did."""
    python = pytestconfig.rootpath / PYTHON
    assert python.exists(), f"{PYTHON} is missing: `make test` sets it up"
    command = [str(python), str(HERE / "python" / "scenarios.py")]
    return run_scenarios(command, bridge.connection_string, "python-old")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, outcomes: Mapping[str, Outcome]) -> None:
    """The older client does what the scenario says."""
    outcome = outcomes[scenario]
    assert outcome.is_ok, outcome.detail


def test_nothing_is_left_out(outcomes: Mapping[str, Outcome]) -> None:
    """Every scenario of the program is asked for here, and no other."""
    assert set(outcomes) == set(SCENARIOS)
