"""The unmodified administration client of Go against the bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.acceptance.driver import HERE, Outcome, build, run_scenarios, tool
from tests.fixtures.administration import connection_string
from tests.fixtures.bridge import Bridge

SCENARIOS = ("queue", "errors", "topic", "rules", "lists", "namespace")

ENTITIES: dict[str, Any] = {"other": {}}


@pytest.fixture(scope="module")
def outcomes(bridge: Bridge) -> Mapping[str, Outcome]:
    """What each scenario of the Go program did."""
    folder = HERE / "go"
    program = folder / "target" / "administration"
    go = tool("go", "Go 1.23 or newer is needed")
    build([go, "build", "-o", str(program), "./administration"], folder)
    text = connection_string(bridge.port)
    return run_scenarios([str(program)], text, "go", SSL_CERT_FILE=str(bridge.ca))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, outcomes: Mapping[str, Outcome]) -> None:
    """The Go client does what the scenario says."""
    outcome = outcomes[scenario]
    assert outcome.is_ok, outcome.detail


def test_nothing_is_left_out(outcomes: Mapping[str, Outcome]) -> None:
    """Every scenario of the program is asked for here, and no other."""
    assert set(outcomes) == set(SCENARIOS)
