"""Batch delete and purge, by the Python client that has them, in an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.driver import HERE, Outcome, run_scenarios

SCENARIOS = (
    "counts",
    "before",
    "others",
    "dead_letters",
    "subscription",
    "session",
    "limits",
    "many",
)

ENTITIES: dict[str, dict[str, object]] = {
    **{f"delete-{name}": {"MaxDeliveryCount": 10} for name in SCENARIOS},
    "delete-session-session": {"RequiresSession": True},
}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "other"}]}]

PYTHON = Path(".venv-preview/bin/python")
"""Made by `make setup` (see Makefile): azure-servicebus 7.13.0b1 and websocket-client."""


pytestmark = pytest.mark.sdks


@pytest.fixture(scope="module")
def outcomes(bridge: Any, pytestconfig: pytest.Config) -> Mapping[str, Outcome]:
    """What each scenario of the program did."""
    python = pytestconfig.rootpath / PYTHON
    assert python.exists(), f"{PYTHON} is missing: `make test` sets it up"
    command = [str(python), str(HERE / "python" / "batch_delete.py")]
    environment = {"PORT": str(bridge.port), "CA": str(bridge.ca)}
    return run_scenarios(command, bridge.connection_string, "delete", **environment)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, outcomes: Mapping[str, Outcome]) -> None:
    """The client does what the scenario says."""
    outcome = outcomes[scenario]
    assert outcome.is_ok, outcome.detail


def test_nothing_is_left_out(outcomes: Mapping[str, Outcome]) -> None:
    """Every scenario of the program is asked for here, and no other."""
    assert set(outcomes) == set(SCENARIOS)
