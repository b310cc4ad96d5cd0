"""Transacted sessions of the unmodified qpid-jms."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.testing.process import Bridge
from tests.acceptance.driver import Outcome, java_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401

SCENARIOS = ("commit", "rollback", "too_many", "across")


QUEUE = "jms"
ENTITIES = {
    f"{QUEUE}-{name}": {"LockDuration": "PT1M", "MaxDeliveryCount": 10}
    for name in (*SCENARIOS, "across-other")
}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(java_program("Jms", of="jms"), bridge.connection_string, QUEUE)
