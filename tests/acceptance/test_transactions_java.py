"""Transactions of the unmodified Java client."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.testing.process import Bridge
from tests.acceptance.driver import Outcome, java_program, run_side_by_side
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401

SCENARIOS = (
    "commit",
    "rollback",
    "every_settlement",
    "deferred",
    "schedule",
    "of_another_client",
    "other_entity_refused",
    "across_entities",
)

QUEUES = ("java-tx-1", "java-tx-2", "java-tx-3")

ENTITIES = {
    f"{queue}{kind}": {"LockDuration": "PT5S", "MaxDeliveryCount": 10}
    for queue in QUEUES
    for kind in ("", "-other")
}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_side_by_side(java_program("Transactions"), bridge.connection_string, QUEUES)
