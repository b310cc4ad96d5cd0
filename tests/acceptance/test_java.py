"""The unmodified Java client against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import COMMON_SCENARIOS, HERE, Outcome, build, run_scenarios, tool

SCENARIOS = (*COMMON_SCENARIOS, "list_send", "processor", "session_processor")

ENTITIES = {
    "java": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "java-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
}


@pytest.fixture(scope="module")
def outcomes(bridge: object) -> Mapping[str, Outcome]:
    """What each scenario of the Java program did."""
    folder = HERE / "java"
    build([tool("mvn", "Maven and JDK 17 are needed"), "-q", "-B", "process-classes"], folder)
    java = tool("java", "JDK 17 is needed")
    classes = f"{folder / 'target' / 'classes'}:{folder / 'target' / 'lib'}/*"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = [java, quiet, "-cp", classes, "scenarios.Scenarios"]
    return run_scenarios(command, bridge.connection_string, "java")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, outcomes: Mapping[str, Outcome]) -> None:
    """The Java client does what the scenario says."""
    outcome = outcomes[scenario]
    assert outcome.is_ok, outcome.detail


def test_nothing_is_left_out(outcomes: Mapping[str, Outcome]) -> None:
    """Every scenario of the program is asked for here, and no other."""
    assert set(outcomes) == set(SCENARIOS)
