"""What docs/sdks.md says of the unmodified .NET client."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import Outcome, dotnet_program, run_scenarios
from tests.acceptance.refused import refused_tokens
from tests.acceptance.scenarios import test_nothing_is_left_out, test_scenario  # noqa: F401
from tests.fixtures.bridge import Bridge

pytestmark = pytest.mark.sdks

SCENARIOS = (
    "wrong_key",
    "wrong_key_without_retries",
    "wrong_key_administration",
    "message_renewed_late",
    "session_renewed_late",
    "session_lock_lost",
    "prefetch_credit",
    "batch_delete",
)

ENTITIES = {
    "dotnet-client": {"LockDuration": "PT5S"},
    "dotnet-client-sessions": {"LockDuration": "PT5S", "RequiresSession": True},
    "dotnet-client-once": {"LockDuration": "PT1M"},
}


def run(bridge: Bridge) -> Mapping[str, Outcome]:
    """Run the program."""
    return run_scenarios(dotnet_program("client"), bridge.connection_string, "dotnet-client")


def test_a_wrong_key_is_tried_as_often_as_the_client_is_told(
    bridge: Bridge, outcomes: Mapping[str, Outcome]
) -> None:
    """Four times by default; once where the application says so."""
    assert outcomes["wrong_key"].is_ok
    assert refused_tokens(bridge, "dotnet-client") == 4
    assert refused_tokens(bridge, "dotnet-client-once") == 1
