"""The commands on messages at a terminal: what it shows, what it asks, and what Ctrl-C does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.model.entity import Queue
from tests.acceptance.busbridge import Busbridge
from tests.conformance.door import Door
from tests.fixtures.terminal import INTERRUPT, terminal
from tests.fixtures.waiting import eventually

REMAINING = re.compile(r"\d+/\d+ +\d:\d\d:\d\d")
"""How many of how many, and the time that is left."""


@pytest.fixture
def busbridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Busbridge]:
    """The command, on a namespace in memory with the queue `q`."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Door(Queue(name="q", lock_duration_ms=300_000)) as door:
        yield Busbridge(door.connection_string, tmp_path, monkeypatch, capsys)


def lines(count: int) -> str:
    """Return lines of messages."""
    return "".join(f"{json.dumps({'body': f'number {at}'})}\n" for at in range(count))


def bodies(busbridge: Busbridge) -> list[str]:
    """Return the bodies of all messages of the queue."""
    return [each["body"] for each in busbridge.done("peek", "q", "--all").rows]


def test_what_lasts_shows_how_far_it_is_and_an_interrupt_where_to_go_on(
    busbridge: Busbridge,
) -> None:
    """With the time that is left; whoever does as it says has sent each message once."""
    with terminal(busbridge.line("send", "q", "m", "--repeat", "3000", "--rate", "50")) as shown:
        shown.awaits(REMAINING.search)
        shown.type(INTERRUPT)
        assert shown.code() == 4
    assert "sending" in shown.text
    assert "stopping; interrupt again to stop at once" in shown.text
    said = re.search(r"Stopped\. Sent (\d+) messages to q; go on with --skip (\d+)\.", shown.text)
    assert said is not None, shown.text
    sent = int(said[1])
    assert 0 < sent == int(said[2]) < 3_000
    assert bodies(busbridge) == ["m"] * sent
    done = busbridge.done("send", "q", "m", "--repeat", "3000", "--skip", said[2])
    assert done.err == f"Sent {3_000 - sent:,} messages to q.\n"
    assert len(bodies(busbridge)) == 3_000


def test_nothing_is_left_of_a_bar_where_something_else_was_written(busbridge: Busbridge) -> None:
    """Tables and sentences have lines of their own above it, and it is gone at the end."""
    with terminal(busbridge.line("receive", "q", "--all", "--wait", "600")) as shown:
        shown.awaits("receiving")
        busbridge.done("send", "q", given=lines(2))
        shown.awaits("number 1")
        shown.awaits(lambda text: text.rindex("receiving") > text.rindex("number 1"))
        shown.type(INTERRUPT)
        assert shown.code() == 4
    assert "receiving" in shown.text
    assert not [line for line in shown.lines if "receiving" in line or "━━" in line]
    first, *_, asked, last = [line for line in shown.lines if line]
    assert re.fullmatch(r" number +enqueued utc +message id +body", first)
    assert asked == "stopping; interrupt again to stop at once"
    assert last.startswith("Stopped: none settled; 2 given back uncounted.")


def test_an_interrupt_gives_back_uncounted_what_is_not_settled(busbridge: Busbridge) -> None:
    """They are shown in a table; the sum is right, and the same command goes on."""
    busbridge.done("send", "q", given=lines(3))
    with terminal(busbridge.line("receive", "q", "--all", "--wait", "600")) as shown:
        shown.awaits("number 2")
        shown.type(INTERRUPT)
        assert shown.code() == 4
    assert '"body"' not in shown.text
    assert (
        "Stopped: none settled; 3 given back uncounted. Give the same command to go on."
        in shown.text
    )
    again = busbridge.done("receive", "q", "--count", "3", "--wait", "120")
    assert [each["delivery_count"] for each in again.rows] == [0, 0, 0]


def test_an_interrupt_keeps_what_is_confirmed(busbridge: Busbridge) -> None:
    """It is gone, and counted; what came later waits for the next command."""
    busbridge.done("send", "q", given=lines(2))
    words = ("receive", "q", "--all", "--settle", "complete", "--yes", "--wait", "600")
    with terminal(busbridge.line(*words)) as shown:
        eventually(lambda: not bodies(busbridge), "both are completed")
        shown.type(INTERRUPT)
        assert shown.code() == 4
    assert "Stopped: 2 completed. Give the same command to go on." in shown.text
    busbridge.done("send", "q", "later")
    assert bodies(busbridge) == ["later"]


@pytest.mark.parametrize("answer", ["n\n", "\n", INTERRUPT])
@pytest.mark.parametrize("how", [("--settle", "complete"), ("--delete",)])
def test_what_removes_messages_asks_first(
    busbridge: Busbridge, how: tuple[str, ...], answer: str
) -> None:
    """Nothing is received unless the answer is yes; exit code 1."""
    busbridge.done("send", "q", "m")
    with terminal(busbridge.line("receive", "q", "--all", "--wait", "1", *how)) as shown:
        shown.awaits("All messages are removed from q. [y/N]")
        shown.type(answer)
        assert shown.code() == 1
    assert "Nothing was done." in shown.text
    assert bodies(busbridge) == ["m"]
    with terminal(busbridge.line("receive", "q", "--wait", "120", *how)) as shown:
        shown.awaits("The received messages are removed from q. [y/N]")
        shown.type("y\n")
        assert shown.code() == 0
    assert bodies(busbridge) == []


def test_data_that_go_to_a_file_are_lines_while_a_terminal_shows_the_rest(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """As by `> FILE`: sentences are for who looks, and the file has nothing else than data."""
    busbridge.done("send", "q", given=lines(2))
    file = tmp_path / "received.jsonl"
    words = ("receive", "q", "--count", "2", "--wait", "120", "--settle", "complete", "--yes")
    with file.open("wb") as stdout, terminal(busbridge.line(*words), stdout=stdout) as shown:
        assert shown.code() == 0
    assert shown.text == "2 completed.\r\n"
    found = [json.loads(line)["body"] for line in file.read_text().splitlines()]
    assert found == ["number 0", "number 1"]


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_colors_are_for_who_wants_them(
    busbridge: Busbridge, monkeypatch: pytest.MonkeyPatch, no_color: str, is_coloured: bool
) -> None:
    """A table's names are bold all the same; nothing in a pipe is either."""
    monkeypatch.setenv("NO_COLOR", no_color)
    busbridge.done("send", "q", "m", "--property", "a=1")
    with terminal(busbridge.line("send", "q", "m", "--repeat", "3000", "--rate", "50")) as shown:
        shown.awaits(REMAINING.search)
        shown.type(INTERRUPT)
        assert shown.code() == 4
    assert bool(re.search(r"\x1b\[[39]\dm", shown.raw)) is is_coloured
    assert "\x1b" not in busbridge.done("peek", "q").out


def test_json_is_had_at_a_terminal_too(busbridge: Busbridge) -> None:
    """By `--json`; without it there is a table."""
    busbridge.done("send", "q", "hello", "--subject", "greeting")
    for more in ((), ("--json",)):
        with terminal(busbridge.line("peek", "q", *more)) as shown:
            assert shown.code() == 0
        assert "greeting" in shown.text
        assert ('"subject": "greeting"' in shown.text) is bool(more)
