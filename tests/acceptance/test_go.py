"""The unmodified Go client against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import COMMON_SCENARIOS, HERE, Outcome, build, run_scenarios, tool

SCENARIOS = (*COMMON_SCENARIOS, "release_unread")

ENTITIES = {
    "go": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "go-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
}


@pytest.fixture(scope="module")
def outcomes(bridge: object) -> Mapping[str, Outcome]:
    """What each scenario of the Go program did."""
    folder = HERE / "go"
    program = folder / "target" / "scenarios"
    build([tool("go", "Go 1.23 or newer is needed"), "build", "-o", str(program), "."], folder)
    command = [str(program)]
    return run_scenarios(command, bridge.connection_string, "go")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, outcomes: Mapping[str, Outcome]) -> None:
    """The Go client does what the scenario says."""
    outcome = outcomes[scenario]
    assert outcome.is_ok, outcome.detail


def test_nothing_is_left_out(outcomes: Mapping[str, Outcome]) -> None:
    """Every scenario of the program is asked for here, and no other."""
    assert set(outcomes) == set(SCENARIOS)
