"""The unmodified administration client of Java against the bridge."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acceptance.driver import Outcome, java_program, java_trust_store, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.administration import connection_string
from tests.fixtures.bridge import Bridge

SCENARIOS = ("queue", "errors", "topic", "rules", "lists", "namespace")

ENTITIES: dict[str, Any] = {"other": {}}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    assert bridge.ca is not None
    with tempfile.TemporaryDirectory() as folder:
        options = java_trust_store(bridge.ca, Path(folder))
        command = java_program("Administration", *options)
        return run_scenarios(command, connection_string(bridge.port), "java")
