"""The unmodified administration client of Go against the bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.acceptance.driver import Outcome, go_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.administration import connection_string
from tests.fixtures.bridge import Bridge

SCENARIOS = ("queue", "errors", "topic", "rules", "lists", "namespace")

ENTITIES: dict[str, Any] = {"other": {}}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    command = go_program("administration", "./administration")
    text = connection_string(bridge.port)
    return run_scenarios(command, text, "go", SSL_CERT_FILE=str(bridge.ca))
