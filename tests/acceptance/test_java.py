"""The unmodified Java client against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

from tests.acceptance.driver import COMMON_SCENARIOS, Outcome, java_program, run_side_by_side
from tests.acceptance.refused import refused_tokens
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

SCENARIOS = (
    *COMMON_SCENARIOS,
    "list_send",
    "processor",
    "session_processor",
    "cross_entity",
)

QUEUES = ("java-1", "java-2")
KINDS: dict[str, dict[str, object]] = {
    "": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
}
ENTITIES = {f"{queue}{kind}": KINDS[kind] for queue in QUEUES for kind in KINDS}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_side_by_side(java_program("Scenarios"), bridge.connection_string, QUEUES)


def test_a_wrong_key_is_tried_once(bridge: Bridge, outcomes: Mapping[str, Outcome]) -> None:
    """With the client's own retry options: what is unauthorized it does not repeat."""
    assert outcomes["wrong_key"].is_ok
    assert sum(refused_tokens(bridge, queue) for queue in QUEUES) == 1
