"""Transactions of the unmodified .NET client, as its own live tests have them."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.testing.process import Bridge
from tests.acceptance.driver import Outcome, dotnet_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401

SCENARIOS = (
    "commit",
    "rollback_then_abandon",
    "every_settlement",
    "deferred",
    "cancel",
    "session",
    "session_state",
    "session_lost",
    "another_client",
    "schedule",
    "other_entity_refused",
    "across_entities",
    "receiver_across_refused",
)


QUEUE = "dotnet-tx"
ENTITIES = {
    QUEUE: {"LockDuration": "PT1M", "MaxDeliveryCount": 10},
    f"{QUEUE}-other": {"LockDuration": "PT1M"},
    f"{QUEUE}-sessions": {"LockDuration": "PT1M", "RequiresSession": True},
}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(dotnet_program("transactions"), bridge.connection_string, QUEUE)
