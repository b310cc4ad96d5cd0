"""The unmodified administration client of JavaScript against the bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.acceptance.driver import Outcome, node_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.administration import connection_string
from tests.fixtures.bridge import Bridge

SCENARIOS = (
    "queue",
    "forwarding",
    "access",
    "errors",
    "topic",
    "rules",
    "lists",
    "namespace",
)

ENTITIES: dict[str, Any] = {"other": {}}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    command = node_program("administration.mjs")
    trusted = {"NODE_EXTRA_CA_CERTS": str(bridge.ca)}
    return run_scenarios(command, connection_string(bridge.port), "javascript", **trusted)
