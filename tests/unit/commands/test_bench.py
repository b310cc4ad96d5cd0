"""What `busbridge bench` says and refuses before it makes anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.cli.main import main

AZURE = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=b"
EMULATOR = (
    f"{AZURE.replace('shop.servicebus.windows.net', 'localhost')};UseDevelopmentEmulator=true"
)


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A namespace that nobody asks."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PLACE", EMULATOR)
    monkeypatch.delenv("BUSBRIDGE_RABBITMQ_URL", raising=False)
    with Path("/dev/null").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what a command line is refused with, as wrong input."""
    assert main(["bench", *words, "--connection-string-variable", "PLACE"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--messages", "0"), "--messages is above 0"),
        (("--seconds", "-1"), "--seconds is above 0"),
        (("--seconds", "nan"), "--seconds is above 0"),
        (("--seconds", "inf"), "--seconds is above 0"),
        (("--rounds", "0"), "--rounds is above 0"),
        (("--batch", "0"), "--batch is above 0"),
        (("--in-flight", "0"), "--in-flight is above 0"),
        (("--in-flight", "65536"), "--in-flight is 65,535 at most"),
        (("--size", "-1"), "--size is not below 0"),
        (("--rabbitmq-url", "http://u:hidden@here"), "--rabbitmq-url: "),
        (("--rabbitmq-url", "amqp://u:hidden@here:port"), "--rabbitmq-url: "),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_option(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    """Nothing is asked for, and no password is shown."""
    said = refused(capsys, *words, "--yes")
    assert reason in said
    assert said.count("\n") == 1
    assert "hidden" not in said


def test_it_asks_before_it_makes_queues_and_names_what_it_makes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a terminal nobody can answer, so it refuses."""
    said = refused(capsys, "--messages", "100", "--rabbitmq-url", "amqp://u:hidden@here/bus")
    assert said.startswith("busbridge: Make 'busbridge-bench-")
    for part in (
        "-sessions' in 'PLACE', and 'busbridge-bench-", "-pika' in amqp://here:5672/bus",
        "send up to 1,860 messages of 1,024 bytes to each side", "give --yes",
    ):  # fmt: skip
        assert part in said
    assert "hidden" not in said
    assert "Azure's" not in said


def test_the_url_of_a_variable_is_taken_and_sessions_have_a_queue_where_they_are_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is that of `serve`."""
    monkeypatch.setenv("BUSBRIDGE_RABBITMQ_URL", "amqp://u:hidden@here/bus")
    said = refused(capsys, "--work", "send", "--work", "receive")
    assert "-pika' in amqp://here:5672/bus" in said
    assert "-sessions" not in said
    monkeypatch.setenv("BUSBRIDGE_RABBITMQ_URL", "amqp://u:hidden@here:port")
    said = refused(capsys, "--work", "send", "--yes")
    assert said.startswith("busbridge: BUSBRIDGE_RABBITMQ_URL: ")
    assert "hidden" not in said


@pytest.mark.parametrize(
    "host", ["SHOP.servicebus.windows.net", "shop.servicebus.chinacloudapi.cn"]
)
def test_at_azure_the_first_word_is_what_it_costs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """And whose throttling is measured."""
    monkeypatch.setenv("PLACE", AZURE.replace("shop.servicebus.windows.net", host))
    first, second = refused(capsys).splitlines()
    assert first.startswith("'PLACE' is Azure's: ")
    assert "bills" in first
    assert "throttles" in first
    assert second.startswith("busbridge: Make ")
