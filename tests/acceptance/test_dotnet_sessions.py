"""Sessions through the unmodified .NET client."""

from __future__ import annotations

from collections.abc import Mapping

from tests.acceptance.driver import Outcome, dotnet_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

SCENARIOS = ("case", "processor_case", "locked_until")

ENTITIES = {"dotnet-sessions": {"LockDuration": "PT5S", "RequiresSession": True}}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(dotnet_program("sessions"), bridge.connection_string, "dotnet-sessions")
