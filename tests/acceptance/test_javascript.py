"""The unmodified JavaScript client against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import COMMON_SCENARIOS, HERE, Outcome, run_scenarios, tool

SCENARIOS = (
    *COMMON_SCENARIOS,
    "array_send",
    "subscribe",
    "schedule_past",
    "long_time_to_live",
    "rules",
    "duplicates",
    "session_subscribe",
    "session_refused",
    "session_many",
)

ENTITIES = {
    "javascript": {
        "LockDuration": "PT5S",
        "MaxDeliveryCount": 10,
        "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
    },
    "javascript-unique": {"RequiresDuplicateDetection": True},
    "javascript-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
    "javascript-many": {"LockDuration": "PT1M", "RequiresSession": True},
}

TOPICS = [{"Name": "javascript-topic", "Subscriptions": [{"Name": "rules"}]}]


@pytest.fixture(scope="module")
def outcomes(bridge: object) -> Mapping[str, Outcome]:
    """What each scenario of the JavaScript program did."""
    node = tool("node", "make test sets Node up")
    modules = HERE / "node" / "node_modules" / "@azure" / "service-bus"
    assert modules.is_dir(), "run `npm ci` in tests/acceptance/node (make test does)"
    command = [node, str(HERE / "node" / "scenarios.mjs")]
    return run_scenarios(command, bridge.connection_string, "javascript")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, outcomes: Mapping[str, Outcome]) -> None:
    """The JavaScript client does what the scenario says."""
    outcome = outcomes[scenario]
    assert outcome.is_ok, outcome.detail


def test_nothing_is_left_out(outcomes: Mapping[str, Outcome]) -> None:
    """Every scenario of the program is asked for here, and no other."""
    assert set(outcomes) == set(SCENARIOS)
