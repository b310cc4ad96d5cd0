"""The unmodified Go client against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

from tests.acceptance.driver import COMMON_SCENARIOS, Outcome, go_program, run_scenarios
from tests.acceptance.rest import KEY, KEY_NAME
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge
from tests.fixtures.strange_values import send_strange

SCENARIOS = (*COMMON_SCENARIOS, "release_unread", "strange_values")

ENTITIES = {
    "go": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "go-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
    "go-strange": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program; a queue has what another library has sent."""
    send_strange(bridge.port, "go-strange", KEY_NAME, KEY)
    return run_scenarios(go_program("scenarios"), bridge.connection_string, "go")
