"""What somebody does wrong who runs a command for the first time: it is named, with the remedy."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.broker.node.ports import Ports
from bridge.cli.main import main

Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command; return its exit code and what it says on standard error."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main(list(arguments))
        return code, capsys.readouterr().err

    return run


@pytest.fixture
def nothing() -> Iterator[str]:
    """Host and port where nothing listens."""
    with Ports(1) as ports:
        yield f"127.0.0.1:{ports.numbers[0]}"


@pytest.mark.parametrize("action", ["adopt", "remove"])
def test_rabbitmq_is_stopped(said: Said, nothing: str, action: str) -> None:
    """The address stands there once, and what to start."""
    code, text = said("policies", action, "--management-url", f"http://{nothing}")
    assert (code, text) == (
        1,
        f"busbridge: no management API answers: http://{nothing}: Connection refused. Start "
        "RabbitMQ with its management plugin (rabbitmq-plugins enable rabbitmq_management), or say "
        "where its API is with --management-url.\n",
    )


def test_a_management_url_without_a_scheme(said: Said) -> None:
    """It is shown as it was given, but for a password."""
    code, text = said("policies", "adopt", "--management-url", "guest:secret@rabbit:15672")
    assert code == 2
    assert "begins with http:// or https://, not 'rabbit:15672'" in text
    assert "secret" not in text


def test_no_certificate_is_offered_that_the_bridge_does_not_serve(
    said: Said, tmp_path: Path
) -> None:
    """On an address that others reach a bridge makes none unless it is told its name."""
    code, text = said("trust", "--data-dir", str(tmp_path), "--host", "0.0.0.0")
    assert code == 2
    assert "--tls-name" in text
    assert not list(tmp_path.iterdir())


def test_an_interruption_is_one_sentence(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a command waits for its user: with the exit code that shells have for it."""

    class Interrupted(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            raise KeyboardInterrupt

    rules = tmp_path / "rules.json"
    rules.write_text('{"rules": [{"name": "all", "primaryKey": "key", "rights": ["Send"]}]}')
    monkeypatch.setattr("sys.stdin", Interrupted())
    code, text = said("auth", "check", str(rules), "--token-file", "-")
    assert (code, text) == (130, "busbridge: interrupted.\n")
