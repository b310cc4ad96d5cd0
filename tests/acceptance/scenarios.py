"""The tests of an SDK's scenario program, for its module to import.

The module has `SCENARIOS`, their names, and `run`, which runs the program once against a bridge.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.acceptance.driver import Outcome


def test_scenario(scenario: str, outcomes: Mapping[str, Outcome]) -> None:
    """The client does what the scenario says."""
    outcome = outcomes[scenario]
    assert outcome.is_ok, outcome.detail


def test_nothing_is_left_out(
    request: pytest.FixtureRequest, outcomes: Mapping[str, Outcome]
) -> None:
    """Every scenario of the program is a test here."""
    assert set(outcomes) == set(request.module.SCENARIOS)
