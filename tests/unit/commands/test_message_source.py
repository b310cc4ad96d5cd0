"""The messages of `send` and `filter test`: from options, a file, and lines."""

from __future__ import annotations

import argparse
import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

from bridge.commands import input_lines
from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_source import LineRefused, MessageSource, add_message
from bridge.commands.send import Schedule
from bridge.operations.lines.message_lines import fields_of


def source(*words: str, repeat: int = 1, text_option: bool = False) -> MessageSource:
    """Return the messages of a command line."""
    parser = argparse.ArgumentParser()
    add_message(parser, text_option=text_option)
    return MessageSource(parser.parse_args(words), now_ms=lambda: 0, repeat=repeat)


def messages(given: MessageSource) -> list[Any]:
    """Return the fields of each message, with its place."""

    async def read() -> list[Any]:
        return [(each.place, fields_of(each.message)) async for each in given.messages()]

    return asyncio.run(read())


def test_options_make_a_message() -> None:
    """A property is JSON where it can be read so, else a text."""
    words = ["hi", "--subject", "s", "--session", "1", "--time-to-live", "PT1M"]
    for each in ("n=5", "color=red", 'big={"long": 5}', 'text="5"', "odd=a=b", "none="):
        words += ["--property", each]
    assert messages(source(*words)) == [
        (
            "message 1",
            {
                "subject": "s",
                "session_id": "1",
                "time_to_live": "PT1M",
                "application_properties": {
                    "n": 5,
                    "color": "red",
                    "big": {"long": 5},
                    "text": "5",
                    "odd": "a=b",
                    "none": "",
                },
                "body": "hi",
            },
        )
    ]


def test_a_file_is_a_body_whatever_is_in_it(tmp_path: Path) -> None:
    """Text or not, each time as often as is asked for."""
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00")
    given = source("--file", str(file), repeat=2)
    assert given.total == 2
    assert [fields["body"] for _, fields in messages(given)] == [{"data": "/wA="}] * 2


def test_lines_are_messages_and_options_fill_in_what_they_do_not_say(tmp_path: Path) -> None:
    """A line's own value wins; its properties are added to those of the options."""
    file = tmp_path / "lines.jsonl"
    file.write_text(
        '\ufeff{"body": "a", "subject": "own", "application_properties": {"x": 1}}\n\n{}\n'
    )
    given = source(
        *("--lines", str(file), "--subject", "s"),
        *("--property", "x=2", "--property", "y=3"),
        repeat=2,
    )
    assert given.total == 4
    first, second = messages(given)[:2]
    assert first == (
        f"{file}:1",
        {"subject": "own", "application_properties": {"x": 1, "y": 3}, "body": "a"},
    )
    assert second == (f"{file}:3", {"subject": "s", "application_properties": {"x": 2, "y": 3}})


def test_a_file_with_wrong_lines_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """The first five are named, each with its line."""
    file = tmp_path / "lines.jsonl"
    file.write_text('{"body": "a"}\n{"body": 5}\n{"x": 1}\n' + "[]\n" * 9)
    with pytest.raises(WrongInput) as refused:
        source("--lines", str(file))
    lines = str(refused.value).splitlines()
    assert len(lines) == 6
    assert lines[0].startswith(f"{file}:2: body: 5 is no body")
    assert lines[1].startswith(f"{file}:3: there is no field 'x'")
    assert lines[5] == "6 lines more are wrong."


def test_a_wrong_line_of_standard_input_stops_behind_those_before_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They may be sent already: the command says where to go on (exit code 4)."""
    file = tmp_path / "lines"
    file.write_bytes(b'{"body": "a"}\n{"body": \xff}\n')
    with file.open("rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        given = source("--lines", "-")
        assert given.total is None
        with pytest.raises(LineRefused) as refused:
            messages(given)
    assert str(refused.value) == "line 2: no UTF-8 at byte 10."
    assert (refused.value.number, refused.value.code) == (2, ExitCode.STOPPED)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "There is no message: give a text, --file or --lines"),
        (("--subject", "s"), "There is no message"),
        (("--lines", "/none"), "--lines: there is no file '/none'."),
        (("--file", "/none"), "/none: No such file or directory."),
        (("a", "--property", "color"), "--property 'color': write NAME=VALUE."),
        (("a", "--property", "=1"), "--property '=1': write NAME=VALUE."),
        (("a", "--property", 'n={"long": "x"}'), 'application_properties.n: "x" is no long'),
        (("a", "--property", 'n={"a": 1}'), "there is no type 'a'"),
        (("a", "--time-to-live", "1h"), 'time_to_live: "1h" is no uint'),
    ],
)
def test_what_is_no_message_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    """By option and field."""
    monkeypatch.setattr("bridge.commands.message_source.is_given", lambda: False)
    with pytest.raises(WrongInput) as refused:
        source(*words)
    assert why in str(refused.value)


def test_standard_input_is_read_only_when_nothing_else_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command in a loop over lines must not eat the lines of the loop."""
    monkeypatch.setattr("bridge.commands.message_source.is_given", lambda: True)
    assert source().total is None
    assert source("text").total == 1
    assert source("--subject", "s", text_option=True).total == 1
    with pytest.raises(WrongInput, match="--lines"):
        source("--subject", "s")
    with pytest.raises(WrongInput, match="--repeat reads the lines again"):
        source(repeat=2)


def test_a_terminal_and_a_closed_input_have_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command does not wait for lines that nobody writes."""
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert not input_lines.is_given()
    monkeypatch.setattr("sys.stdin", None)
    assert not input_lines.is_given()


def test_a_schedule_is_a_time_or_a_delay() -> None:
    """The delay counts from when a message is sent."""
    assert Schedule.read("PT5M").at_ms(1_000) == 301_000
    assert Schedule.read("1970-01-01T00:00:02Z").at_ms(1_000) == 2_000
    for wrong in ("soon", "P1Y", "2026-11-27T09:00"):
        with pytest.raises(WrongInput, match="--schedule"):
            Schedule.read(wrong)
