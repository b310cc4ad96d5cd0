"""The unmodified administration client of JavaScript against the bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.acceptance.driver import HERE, Outcome, run_scenarios, tool
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


@pytest.fixture(scope="module")
def outcomes(bridge: Bridge) -> Mapping[str, Outcome]:
    """What each scenario of the JavaScript program did."""
    node = tool("node", "make test sets Node up")
    command = [node, str(HERE / "node" / "administration.mjs")]
    trusted = {"NODE_EXTRA_CA_CERTS": str(bridge.ca)}
    return run_scenarios(command, connection_string(bridge.port), "javascript", **trusted)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, outcomes: Mapping[str, Outcome]) -> None:
    """The JavaScript client does what the scenario says."""
    outcome = outcomes[scenario]
    assert outcome.is_ok, outcome.detail


def test_nothing_is_left_out(outcomes: Mapping[str, Outcome]) -> None:
    """Every scenario of the program is asked for here, and no other."""
    assert set(outcomes) == set(SCENARIOS)
