"""Terraform and Kubernetes files, read by the parsers of Terraform and of Kubernetes."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bridge.topology.capabilities import Capabilities
from bridge.topology.plain import compile_plain
from policies.writers import WRITERS
from tests.acceptance.driver import build, tool
from tests.unit.policies.test_golden import CONTOSO
from tests.unit.policies.test_writers import wanted

pytestmark = pytest.mark.sdks

FLAVOURS = ("bridge", "plain")


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the folder `go`."""
    program = tmp_path_factory.mktemp("go") / "check"
    go = tool("go", "Go 1.23 or newer is needed")
    build(Path(__file__).with_name("go"), go, "build", "-o", str(program), ".")
    return program


def written(to: str, flavour: str, folder: Path) -> Path:
    """A file of a namespace with everything in it."""
    given = wanted(CONTOSO, vhost="a b${c}%{d}\"e'#")
    if flavour == "plain":
        given = replace(given, topology=compile_plain(CONTOSO, Capabilities.of("4.3")))
    path = folder / ("written.tf" if to == "terraform" else "written.yaml")
    path.write_text(WRITERS[to](given).text)
    return path


def run(program: Path, file: Path) -> str:
    """What the program says of a file, which must be right."""
    done = subprocess.run([program, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_terraforms_parser_takes_it_and_its_formatter_changes_nothing(
    check: Path, tmp_path: Path, flavour: str
) -> None:
    """Names with all that means something in Terraform's language."""
    run(check, written("terraform", flavour, tmp_path))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_kubernetes_reads_the_same_objects(check: Path, tmp_path: Path, flavour: str) -> None:
    """Strictly, so that no key is there twice, and as JSON."""
    file = written("kubernetes", flavour, tmp_path)
    objects = [json.loads(line) for line in run(check, file).splitlines()]
    assert objects == list(yaml.safe_load_all(file.read_text()))
    assert len(objects) > 20


def test_a_file_that_is_wrong_is_found(check: Path, tmp_path: Path) -> None:
    """The parsers do refuse something."""
    for name, text in (("a.tf", 'a = "${"\n'), ("b.tf", "a  = 1\n"), ("c.yaml", "a: 1\na: 2\n")):
        file = tmp_path / name
        file.write_text(text)
        assert subprocess.run([check, file], capture_output=True, check=False).returncode == 1
