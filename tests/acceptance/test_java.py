"""The unmodified Java client against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

from tests.acceptance.driver import COMMON_SCENARIOS, Outcome, java_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

SCENARIOS = (*COMMON_SCENARIOS, "list_send", "processor", "session_processor")

ENTITIES = {
    "java": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "java-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(java_program("Scenarios"), bridge.connection_string, "java")
