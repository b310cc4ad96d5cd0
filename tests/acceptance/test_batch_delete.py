"""Batch delete and purge, by the Python client that has them, in an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import Outcome, python_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

SCENARIOS = (
    "counts",
    "before",
    "others",
    "dead_letters",
    "subscription",
    "session",
    "limits",
    "many",
)

ENTITIES: dict[str, dict[str, object]] = {
    **{f"delete-{name}": {"MaxDeliveryCount": 10} for name in SCENARIOS},
    "delete-session-session": {"RequiresSession": True},
}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "other"}]}]

pytestmark = pytest.mark.sdks


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    command = python_program("batch_delete.py", ".venv-preview")
    environment = {"PORT": str(bridge.port), "CA": str(bridge.ca)}
    return run_scenarios(command, bridge.connection_string, "delete", **environment)
