"""What frameworks for .NET ask at their start, and `EnableCrossEntityTransactions` in plain use.

docs/sdks.md lists the frameworks.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import Outcome, dotnet_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

pytestmark = pytest.mark.sdks

SCENARIOS = (
    "nservicebus_setup",
    "nservicebus_subscribe",
    "nservicebus_receive_only",
    "masstransit_topology",
    "rebus_start",
    "wolverine_provisioning",
    "functions_triggers",
    "functions_scaling",
    "cross_entity_plain_use",
    "cross_entity_sessions",
    "cross_entity_many_links",
    "nservicebus_atomic",
)

ENTITIES: dict[str, dict[str, object]] = {}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(dotnet_program("frameworks"), bridge.connection_string, "frameworks")
