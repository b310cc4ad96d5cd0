"""Batches, properties and administration as .NET's own client has them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import Outcome, dotnet_program, run_scenarios
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

pytestmark = pytest.mark.sdks

SCENARIOS = (
    "any_count",
    "too_large",
    "partition_keys",
    "session_ids",
    "message_ids",
    "order_of_properties",
    "dead_letter_reason_of_another_type",
    "message_size_of_an_old_version",
    "path_of_dead_letters",
    "size_after_a_send",
    "dates_of_authorization_rules",
    "sizes_of_entities",
    "empty_user_metadata",
)

ENTITIES: dict[str, dict[str, object]] = {
    "batches": {},
    "batches-partitioned": {"EnablePartitioning": True},
    "batches-sessions": {"EnablePartitioning": True, "RequiresSession": True},
    "batches-duplicates": {"EnablePartitioning": True, "RequiresDuplicateDetection": True},
}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(dotnet_program("batches"), bridge.connection_string, "batches")
