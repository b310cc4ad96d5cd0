"""Batch delete and purge by the preview of the JavaScript client, which has them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import Outcome, node_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

SCENARIOS = ("counts", "before", "others", "dead", "session")

ENTITIES: dict[str, dict[str, object]] = {
    **{f"purge-{name}": {"MaxDeliveryCount": 10} for name in SCENARIOS},
    "purge-session": {"RequiresSession": True},
}
TOPICS = [{"Name": "purge-topic", "Subscriptions": [{"Name": "audit"}, {"Name": "other"}]}]

pytestmark = pytest.mark.sdks


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(
        node_program("batch_delete.mjs", "node-preview"), bridge.connection_string, "purge"
    )
