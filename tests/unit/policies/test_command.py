"""`busbridge policies generate` and `report`, as somebody types them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.cli.main import main
from bridge.commands import terminal
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
        (("--flavour", "plain", "--own-vhost"), "--own-vhost is for --flavour bridge"),
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


@pytest.mark.parametrize("action", ["generate", "report", "plan", "apply", "check", "remove"])
def test_help_has_examples_and_exit_codes(capsys: pytest.CaptureFixture[str], action: str) -> None:
    """And the version is said."""
    with pytest.raises(SystemExit, match="0"):
        main(["policies", action, "--help"])
    said = capsys.readouterr().out
    assert "examples:\n  " in said
    assert "exit codes:\n  0  done" in said
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("busbridge 0.")


def test_losses_are_said_when_something_is_generated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With their names and how many they are; accepted ones do not stop `--strict`."""
    config = tmp_path / "Config.json"
    queue = {"Name": "Orders", "Properties": {"RequiresSession": True, "ForwardTo": "other"}}
    namespace = {"Name": "n", "Queues": [queue, {"Name": "other"}]}
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    words = ("generate", str(config), "--to", "bash", "--flavour", "plain")
    code, out, err = run(capsys, *words)
    assert (code, bool(out)) == (0, True)
    assert "lost: Orders:RequiresSession: " in err
    assert (
        "lost: Orders:RequiresSession (orders in RabbitMQ): "
        in (run(capsys, *words, "--names", "lower")[2])
    )
    assert "loss" in err.splitlines()[-1]
    assert run(capsys, *words, "--strict")[:2] == (3, "")
    assert run(capsys, *words, "--strict", "--accept-losses", "orders:RequiresSession")[0] == 3
    accepted = ("--accept-losses", "Orders:RequiresSession,Orders:ForwardTo")
    assert run(capsys, *words, "--strict", *accepted)[0] == 0


def test_output_goes_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The same bytes as on standard output."""
    file = tmp_path / "made.sh"
    said = run(capsys, "generate", CONFIG, "--to", "bash")[1]
    assert run(capsys, "generate", CONFIG, "--to", "bash", "--output", str(file))[1] == ""
    assert file.read_bytes() == said.encode()
    assert run(capsys, "report", CONFIG, "-o", str(file))[1] == ""
    assert "exact" in file.read_text()


async def shown_bar() -> None:
    """A work of three steps, one of which takes long."""
    with terminal.ProgressBar(847, "Applying", clock=iter((0.0, 10.0, 20.0, 30.0)).__next__) as bar:
        bar.doing("200 objects at once")
        for _ in range(3):  # the loop's timer has its turn
            await asyncio.sleep(0)
        bar.advance(200)
        bar.advance(647)


def test_a_bar_is_shown_at_a_terminal_only_and_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, for what takes over a second; seen during a step that takes long, too."""
    asyncio.run(shown_bar())
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(terminal, "QUIET_S", -1.0)
    asyncio.run(shown_bar())
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "150")
    asyncio.run(shown_bar())
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.removeprefix("\x1b[K") for line in err.split("\r")] == [
        "",
        "Applying [..............................] 0/847: 200 objects at once",
        "Applying [#######.......................] 200/847, 0:32 left: 200 objects at once",
        "Applying [##############################] 847/847: 200 objects at once",
        "",
    ]
    monkeypatch.setenv("COLUMNS", "20")
    asyncio.run(shown_bar())
    assert (
        max(len(line.removeprefix("\x1b[K")) for line in capsys.readouterr().err.split("\r")) == 19
    )


def test_names_and_the_cluster_of_kubernetes_are_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Plain names are as given, or folded; objects go where one says."""
    path = tmp_path / "Config.json"
    namespace = {"Name": "n", "Queues": [{"Name": "Orders"}]}
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    words = ["policies", "generate", str(path), "--to", "kubernetes"]
    place = ["--kubernetes-namespace", "shop", "--kubernetes-cluster", "brokers/rabbit"]

    assert main([*words, *place, "--flavour", "plain"]) == 0
    given = capsys.readouterr().out
    assert main([*words, *place, "--flavour", "plain", "--names", "lower"]) == 0
    lower = capsys.readouterr().out

    assert '  name: "Orders"\n' in given
    assert '  name: "orders"\n' in lower
    assert '  namespace: "shop"\n' in given
    assert '    name: "rabbit"\n    namespace: "brokers"\n' in given
    assert main([*words, "--names", "lower"]) == 2
    assert "--names is for --flavour plain" in capsys.readouterr().err
