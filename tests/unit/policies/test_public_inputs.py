"""Inputs in the shape of public ones are read whole, by their format, into the same entities."""

from __future__ import annotations

import json

import pytest

from bridge.cli.main import main
from policies.writers import WRITERS
from tests.unit.policies.inputs import INPUTS, Input

READ_TODAY = [
    each
    for each in INPUTS
    if each.name not in ("authrule.template.json", "masstransit.xml", "two.template.json")
]


@pytest.mark.parametrize("given", READ_TODAY, ids=lambda each: each.name)
def test_every_entity_of_the_input_is_found(
    given: Input, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is spelled there."""
    assert main(["policies", "report", given.path, "--json", *given.options]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    found = {(entry["kind"], entry["entity"]) for entry in entries}
    assert {name for kind, name in found if kind == "Queue"} == {*given.queues}
    assert {name for kind, name in found if kind == "Subscription"} == {*given.subscriptions}


@pytest.mark.parametrize("flavour", ["bridge", "plain"])
@pytest.mark.parametrize("given", READ_TODAY, ids=lambda each: each.name)
def test_every_form_can_be_written(
    given: Input, flavour: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same bytes each time."""
    for to in WRITERS:
        words = ["policies", "generate", given.path, "--to", to, "--flavour", flavour]
        written = []
        for _ in range(2):
            assert main([*words, *given.options]) == 0
            written.append(capsys.readouterr().out)
        assert written[0] == written[1]
