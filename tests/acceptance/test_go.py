"""The unmodified Go client against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

from tests.acceptance.driver import COMMON_SCENARIOS, Outcome, go_program, run_side_by_side
from tests.acceptance.refused import refused_tokens
from tests.acceptance.rest import KEY, KEY_NAME
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge
from tests.fixtures.strange_values import send_strange

SCENARIOS = (*COMMON_SCENARIOS, "release_unread", "strange_values")

QUEUES = ("go-1", "go-2", "go-3")
KINDS: dict[str, dict[str, object]] = {
    "": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
    "-strange": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
}
ENTITIES = {f"{queue}{kind}": KINDS[kind] for queue in QUEUES for kind in KINDS}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program; one queue has what another library has sent."""
    for queue in QUEUES:
        send_strange(bridge.port, f"{queue}-strange", KEY_NAME, KEY)
    return run_side_by_side(go_program("scenarios"), bridge.connection_string, QUEUES)


def test_a_wrong_key_is_tried_once(bridge: Bridge, outcomes: Mapping[str, Outcome]) -> None:
    """With the client's own retry options: what is unauthorized it does not repeat."""
    assert outcomes["wrong_key"].is_ok
    assert sum(refused_tokens(bridge, queue) for queue in QUEUES) == 1
