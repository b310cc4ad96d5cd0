"""Profiles: where a namespace's connection string is to be had, and that no key is left behind."""

from __future__ import annotations

import json
import logging
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.cli.main import main
from bridge.commands import profile

KEY = "bm90IGEgcmVhbCBrZXk9PQ"
STRING = f"Endpoint=sb://one.example/;SharedAccessKeyName=root;SharedAccessKey={KEY}"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, in which no profile is yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BUSBRIDGE_NAMESPACE", raising=False)
    monkeypatch.setenv("ONE", STRING)
    return tmp_path


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `busbridge profile`; return exit code, data, and what was said: no key is in them."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["profile", *words])
        said = capsys.readouterr()
        assert KEY not in said.out + said.err
        return code, said.out, said.err

    return call


@pytest.fixture
def everything(home: Path, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a test leaves behind, in a file or a log, has no key."""
    caplog.set_level(logging.DEBUG)
    yield
    left = [path.read_text() for path in home.rglob("*") if path.is_file()]
    assert not [text for text in (*left, caplog.text) if KEY in text]


def stored(home: Path) -> dict[str, object]:
    """Return what the file of profiles has."""
    document = json.loads((home / "config" / "busbridge" / "profiles.json").read_text())
    found: dict[str, object] = document["profiles"]
    return found


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        (("--variable", "ONE"), {"variable": "ONE"}),
        (
            ("--command", f"{sys.executable} -c 'import os; print(os.environ[\"ONE\"])'"),
            {"command": f"{sys.executable} -c 'import os; print(os.environ[\"ONE\"])'"},
        ),
    ],
    ids=["variable", "command"],
)
@pytest.mark.usefixtures("everything")
def test_a_profile_keeps_where_the_connection_string_is_and_not_the_string(
    home: Path, run: Run, source: tuple[str, ...], kept: dict[str, str]
) -> None:
    """Each time it is read from there; the host is kept for the list."""
    code, data, said = run("add", "prod", *source)
    assert (code, data) == (0, "")
    assert "one.example" in said
    assert stored(home) == {"prod": {"host": "one.example", **kept}}
    found = profile.read(profile.path_of()).named("prod")
    assert found.connection_string() == STRING
    assert KEY not in repr(found)


def test_a_connection_string_in_a_file(home: Path, run: Run) -> None:
    """Its path is absolute, whatever folder commands run in later."""
    (home / "secret").write_text(STRING + "\n")
    assert run("add", "prod", "--file", str(home / "secret"))[0] == 0
    assert stored(home) == {"prod": {"host": "one.example", "file": str(home / "secret")}}
    assert profile.read(profile.path_of()).named("prod").connection_string() == STRING


def test_a_key_is_kept_only_when_that_is_asked_for_and_only_for_its_owner(
    home: Path, run: Run
) -> None:
    """In a file of mode 0600 in a folder of mode 0700; no output has it."""
    assert run("add", "prod", "--variable", "ONE", "--store-key")[0] == 0
    assert run("list")[0] == run("list", "--json")[0] == run("use", "prod")[0] == 0
    path = profile.path_of()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stored(home) == {"prod": {"host": "one.example", "stored": STRING}}
    assert [each.name for each in path.parent.iterdir()] == ["profiles.json"]
    assert KEY not in repr(profile.read(path))


def test_keys_that_others_can_read_are_not_used(home: Path, run: Run) -> None:
    """The sentence has the command that mends it."""
    run("add", "prod", "--variable", "ONE", "--store-key")
    profile.path_of().chmod(0o644)
    code, _, said = run("list")
    assert code == 2
    assert f"chmod 600 {profile.path_of()}" in said
    profile.path_of().chmod(0o600)
    assert run("list")[0] == 0


@pytest.mark.usefixtures("everything")
def test_the_list_says_which_one_is_used(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `profile use`, or by the variable, which comes first; `local` is always there."""
    run("add", "prod", "--variable", "ONE")
    run("add", "test", "--variable", "ONE")

    def used() -> list[str]:
        rows = map(json.loads, run("list")[1].splitlines())
        return [row["name"] for row in rows if row["is_used"]]

    assert used() == ["local"]
    assert run("use", "prod")[0] == 0
    assert used() == ["prod"]
    monkeypatch.setenv("BUSBRIDGE_NAMESPACE", "test")
    assert used() == ["test"]
    assert "BUSBRIDGE_NAMESPACE" in run("use", "prod")[2]
    monkeypatch.delenv("BUSBRIDGE_NAMESPACE")
    assert run("remove", "prod")[0] == 0
    assert used() == ["local"]
    assert run("use", "prod")[0] == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("prod", "--variable", "NOTHING"), "NOTHING is not set"),
        (("prod", "--variable", "HALF"), "SharedAccessKeyName and SharedAccessKey go together"),
        (("prod", "--variable", "HOST"), "neither SharedAccessKey nor SharedAccessSignature"),
        (("prod", "--file", "nowhere"), "nowhere cannot be read"),
        (("prod", "--command", "false"), "'false' gives no connection string: exit code 1"),
        (("prod", "--command", "no-such-program"), "'no-such-program' gives no connection string"),
        (("prod", "--variable", "ONE", "--ca-file", "nowhere"), "there is no file"),
        (("local", "--variable", "ONE"), "cannot be called 'local'"),
        (("prod", "--entra", "one.example", "--store-key"), "has no key"),
    ],
)
@pytest.mark.usefixtures("everything")
def test_what_cannot_be_used_is_refused_before_anything_is_written(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], reason: str
) -> None:
    """In one sentence, with exit code 2."""
    monkeypatch.setenv("HALF", f"Endpoint=sb://one.example/;SharedAccessKey={KEY}")
    monkeypatch.setenv("HOST", "Endpoint=sb://one.example/")
    code, _, said = run("add", *words)
    assert code == 2
    assert reason in said
    assert said.count("\n") == 1
    assert not profile.path_of().exists()


def test_a_broken_file_of_profiles_is_named(home: Path, run: Run) -> None:
    """And left alone."""
    path = profile.path_of()
    path.parent.mkdir(parents=True)
    path.write_text("{")
    code, _, said = run("add", "prod", "--variable", "ONE")
    assert code == 2
    assert str(path) in said
    assert path.read_text() == "{"


def test_a_command_of_another_version_keeps_what_it_does_not_know_apart(
    home: Path, run: Run
) -> None:
    """A field of a later version does not make the file unreadable."""
    run("add", "prod", "--variable", "ONE")
    path = profile.path_of()
    document = json.loads(path.read_text())
    document["profiles"]["prod"]["later"] = True
    path.write_text(json.dumps(document))
    assert profile.read(path).named("prod").variable == "ONE"


def test_no_traceback_of_a_failing_command_shows_the_key(home: Path) -> None:
    """Where nothing listens, with the key in a variable, and every log on."""
    done = subprocess.run(
        [
            *(sys.executable, "-X", "dev", "-m", "bridge.cli.command", "ls"),
            *("--connection-string-variable", "TWO"),
        ],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "XDG_CONFIG_HOME": str(home),
            "TWO": STRING.replace("one.example", "127.0.0.1:1"),
            "PYTHONASYNCIODEBUG": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "https://127.0.0.1:1 does not answer" in done.stderr
    assert KEY not in done.stdout + done.stderr
