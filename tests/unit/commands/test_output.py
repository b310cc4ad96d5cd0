"""Data go to standard output, as tables for people and as JSON lines for programs."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

from bridge.commands.errors import Declined, WrongInput
from bridge.commands.output import Output, cell
from tests.fixtures.waiting import until


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


ROWS = [
    {"name": "orders", "active": 1234, "dead_letter": 2, "time": None},
    {"name": "events", "active": 0, "dead_letter": 0, "time": datetime(2026, 11, 2, tzinfo=UTC)},
]


def test_a_pipe_gets_one_line_of_json_for_each_row() -> None:
    """With everything that a row has, and times as text."""
    stream = io.StringIO()
    Output(stdout=stream).table(ROWS, ("name",))

    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first == ROWS[0]
    assert second == ROWS[1] | {"time": "2026-11-02T00:00:00.000Z"}


def test_json_is_had_at_a_terminal_too() -> None:
    """By `--json`."""
    stream = Terminal()
    Output(as_json=True, stdout=stream).table(ROWS)

    assert [json.loads(line)["name"] for line in stream.getvalue().splitlines()] == [
        "orders",
        "events",
    ]


def test_a_file_gets_what_is_said_while_a_table_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error that is no terminal has its lines, and the table stands undisturbed."""
    stream, log = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    output = Output(stdout=stream)
    with output.changing() as draw:
        draw(output.drawn(ROWS))
        print("target-away", file=sys.stderr)

    assert log.getvalue() == "target-away\n"
    assert "target-away" not in stream.getvalue()


def test_a_terminal_gets_a_table_of_the_chosen_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With numbers in groups of three digits, and none of the other columns."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    Output(stdout=stream).table(ROWS, ("name", "active", "dead_letter"))

    text = stream.getvalue()
    assert "1,234" in text
    assert "dead letter" in text
    assert "time" not in text


@pytest.mark.parametrize(("no_color", "is_red"), [("", True), ("1", False)])
def test_what_alarms_is_red_unless_colors_are_unwanted(
    monkeypatch: pytest.MonkeyPatch, no_color: str, is_red: bool
) -> None:
    """Only numbers above 0."""
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    Output(stdout=stream).table(ROWS, ("name", "dead_letter"), alarming=("dead_letter",))

    assert stream.getvalue().count("\x1b[1;31m") == is_red


def test_no_name_and_no_message_can_send_a_control_character_to_a_terminal() -> None:
    """An escape sequence in a body could hide or forge what stands above it."""
    stream = Terminal()
    output = Output(stdout=stream, stderr=stream)
    output.table([{"body": "\x1b[2J\r\u202egnp"}])
    output.record({"body": "\x1b[2J\r\u202egnp"})
    output.say("\x1b[2J\r\u202egnp")

    assert stream.getvalue().count("[2J") == 3
    assert not any(each in stream.getvalue() for each in ("\x1b[2J", "\r", "\u202e"))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (12345, "12,345"),
        ("a\x00b", "a\\x00b"),
        ({"a": [1]}, '{"a": [1]}'),
        (b"\xff", '"\\\\xff"'),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "2026-01-01T00:00:00.000Z"),
    ],
)
def test_values_in_a_table(value: object, shown: str) -> None:
    """As people read them."""
    assert cell(value) == shown


def test_of_many_texts_the_first_are_said_and_the_others_counted() -> None:
    """A file of a million refused lines does not scroll away what they have in common."""
    stream = io.StringIO()
    output = Output(stderr=stream)
    output.say_some("refused", [])
    assert stream.getvalue() == ""
    output.say_some("refused", [f"line {at}" for at in range(1_510)])
    said = stream.getvalue().splitlines()
    assert said == [*(f"refused: line {at}" for at in range(10)), "refused: 1,500 more"]


def test_nothing_is_destroyed_unasked_where_nobody_can_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script gives --yes."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(WrongInput, match=r"Delete orders\? .* --yes"):
        Output().confirm("Delete orders?")
    Output(is_confirmed=True).confirm("Delete orders?")


@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("YES", True), ("", False)])
def test_a_question_is_answered_at_the_terminal(
    monkeypatch: pytest.MonkeyPatch, answer: str, goes_on: bool
) -> None:
    """Only y and yes are a yes."""
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    monkeypatch.setattr("sys.stderr", Terminal())
    if goes_on:
        Output().confirm("Delete orders?")
    else:
        with pytest.raises(Declined, match="Nothing was done"):
            Output().confirm("Delete orders?")


def test_a_script_names_what_it_destroys() -> None:
    """Another name is refused, and so is none."""
    Output().confirm_by_name("Empties one.", "one", "one")
    with pytest.raises(WrongInput, match="--yes names 'two', and the namespace is 'one'"):
        Output().confirm_by_name("Empties one.", "one", "two")


def test_who_is_asked_types_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A yes is no name."""
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr("sys.stdin", Terminal("one\n"))
    Output().confirm_by_name("Empties one.", "one", "")
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    with pytest.raises(Declined, match="Nothing was done"):
        Output().confirm_by_name("Empties one.", "one", "")


def test_without_a_terminal_the_name_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text says how it is given."""
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n"))
    with pytest.raises(WrongInput, match="give --yes one"):
        Output().confirm_by_name("Empties one.", "one", "")


async def test_progress_appears_when_the_work_lasts_above_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what is done, of how many; on standard error, and only at a terminal."""
    monkeypatch.setattr("bridge.commands.output.QUIET_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    data, people = io.StringIO(), Terminal()
    with Output(stdout=data, stderr=people).progress(8, "reading") as progress:
        progress.advance(3)
        await until(lambda: "3/8" in people.getvalue())
    assert data.getvalue() == ""

    silent = io.StringIO()
    with Output(stdout=data, stderr=silent).progress(8, "reading") as progress:
        progress.advance(8)
        await asyncio.sleep(0)
    assert silent.getvalue() == ""
