"""An older client, azure-servicebus 7.14.3, in an environment of its own, against the bridge."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import Outcome, python_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

ENTITIES = {"python-old": {"LockDuration": "PT5S", "MaxDeliveryCount": 10}}

SCENARIOS = (
    "single_send",
    "batch_send",
    "abandon",
    "dead_letter",
    "defer",
    "close_with_unsettled",
    "renew_lock",
    "lock_lost",
    "schedule",
    "schedule_cancel",
    "cancel_unknown",
    "receive_and_delete",
    "time_to_live",
    "large",
    "wrong_key",
    "unknown_entity",
)


pytestmark = pytest.mark.sdks


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    command = python_program("scenarios.py", ".venv-7.14")
    return run_scenarios(command, bridge.connection_string, "python-old")
