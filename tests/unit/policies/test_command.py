"""`busbridge policies generate` and `report`, as somebody types them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.cli.main import main
from policies.writers import WRITERS

GOLDEN = Path(__file__).parent / "golden"
CONFIG = str(GOLDEN / "Config.json")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, its output and what it said to people."""
    code = main(["policies", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--ceiling-ttl", "soon"), "'soon' is not an ISO 8601 duration"),
        (("--ceiling-ttl", "PT0S"), "leaves no message alive"),
        (("--ceiling-ttl", "P3651D"), "RabbitMQ's longest is P3650D"),
        (("--ceiling-size-mb", "-5"), "leaves no message alive"),
        (("--target", "2"), "'2' is not a RabbitMQ version"),
        (("--target", "3.9"), "3.9"),
        (("--parameter", "x"), "is not NAME=VALUE"),
        (("--from", "az"), "Config.json"),
        (("--parameters", "missing.json"), "missing.json: No such file"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_a_sentence(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    """Exit code 2, and nothing on standard output."""
    code, out, err = run(capsys, "generate", CONFIG, "--to", "bash", *words)
    assert (code, out) == (2, "")
    assert err.startswith("busbridge: ")
    assert reason in err


@pytest.mark.parametrize(
    ("to", "vhost"), [("cmd", "a%b"), ("powershell", "é"), ("terraform", "a@b")]
)
def test_a_virtual_host_that_a_form_cannot_say_is_refused(
    capsys: pytest.CaptureFixture[str], to: str, vhost: str
) -> None:
    """Rather no output than one that means another."""
    code, out, err = run(capsys, "generate", CONFIG, "--to", to, "--vhost", vhost)
    assert (code, out) == (2, "")
    assert repr(vhost) in err


def test_what_cannot_be_opened_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder is no input."""
    assert run(capsys, "report", str(GOLDEN)) == (2, "", f"busbridge: {GOLDEN}: Is a directory\n")


def test_standard_input_is_an_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same report as of the file."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(CONFIG).read_bytes())))
        given = run(capsys, "report", "-", "--json")
    of_file = run(capsys, "report", CONFIG, "--json")
    assert given[0] == of_file[0] == 0
    assert json.loads(given[1])["entries"] == json.loads(of_file[1])["entries"]


def shuffled(value: object) -> object:
    """The same JSON with the keys of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(each) for each in value] if isinstance(value, list) else value


def test_the_order_of_keys_and_of_hashes_changes_no_byte(tmp_path: Path) -> None:
    """Where order means nothing in the input it means nothing in the output."""
    other = tmp_path / "Config.json"
    other.write_text(json.dumps(shuffled(json.loads(Path(CONFIG).read_text()))))
    program = (
        "import sys; from bridge.cli.main import main\n"
        "for to in sys.argv[2:]:\n"
        "    assert main(['policies', 'generate', sys.argv[1], '--to', to]) == 0"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, source, *sorted(WRITERS)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            check=True,
        ).stdout
        for seed, source in (("0", CONFIG), ("42", str(other)))
    }
    assert len(outputs) == 1
