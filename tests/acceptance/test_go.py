"""The unmodified Go client against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

from tests.acceptance.driver import COMMON_SCENARIOS, Outcome, go_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

SCENARIOS = (*COMMON_SCENARIOS, "release_unread")

ENTITIES = {
    "go": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "go-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(go_program("scenarios"), bridge.connection_string, "go")
