"""Inputs in the shape of public ones are read whole, by their format, into the same entities."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.cli.main import main
from policies.writers import WRITERS
from tests.unit.policies.inputs import INPUTS, Input


@pytest.mark.parametrize("given", INPUTS, ids=lambda each: each.name)
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
@pytest.mark.parametrize("given", INPUTS, ids=lambda each: each.name)
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


def test_one_of_several_namespaces_is_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name it is an error that says the option; so is a name that is not there."""
    path = INPUTS[-1].path
    assert main(["policies", "report", path]) == 2
    assert "2 namespaces: 'shop-eu', 'shop-us'. Say which one with --namespace" in (
        capsys.readouterr().err
    )
    assert main(["policies", "report", path, "--namespace", "shop"]) == 2
    assert "has no namespace 'shop'. It has 'shop-eu', 'shop-us'." in capsys.readouterr().err
    assert main(["policies", "report", path, "--namespace", "SHOP-US", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert {entry["entity"] for entry in entries} == {"", "returns"}


def test_several_files_are_one_namespace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file may refer to an entity that another one defines."""
    parts = json.loads(Path(INPUTS[5].path).read_text())
    files = []
    for number, part in enumerate(reversed(parts)):
        files.append(str(tmp_path / f"{number}.json"))
        Path(files[-1]).write_text(json.dumps(part))
    found = []
    for words in ([INPUTS[5].path], files):
        assert main(["policies", "generate", *words, "--to", "definitions"]) == 0
        output = json.loads(capsys.readouterr().out)
        parameters = {row["name"]: row["value"] for row in output["global_parameters"]}
        found.append({name: value for name, value in parameters.items() if "entity" in name})
    assert found[0] == found[1]


def test_files_that_do_not_fit_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two namespaces, or an entity in two ways; the same twice is fine."""
    emulator = next(each.path for each in INPUTS if each.name == "Config.json")
    state = next(each.path for each in INPUTS if each.name == "state.json")
    assert main(["policies", "report", emulator, emulator]) == 0
    capsys.readouterr()
    other = tmp_path / "other.json"
    other.write_text(Path(emulator).read_text().replace('"PT1H"', '"PT2H"'))
    assert main(["policies", "report", emulator, str(other)]) == 2
    assert "'queue.1' is defined otherwise in " in capsys.readouterr().err
    az = next(each.path for each in INPUTS if each.name == "az.json")
    assert main(["policies", "report", az, state]) == 2
    assert "The inputs are of 2 namespaces: post, pay." in capsys.readouterr().err
