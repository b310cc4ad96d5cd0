"""Messages in a table fit a terminal, whatever is in them."""

from __future__ import annotations

import io
import re

import pytest

from bridge.commands.output import Output
from bridge.commands.shown_messages import body_width, row, write
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10 import scalars
from bridge.wire.amqp10.message_properties import MessageProperties

LONG = RemoteMessage.of(
    data=b'{"a":\n 1, "text": "\x1b[31m' + b"x" * 500 + b'"}',
    properties=MessageProperties(message_id="5d9259830f4cb14070f09f0749bea9ab", subject="order"),
    annotations={
        "x-opt-sequence-number": 1,
        "x-opt-enqueued-time": scalars.Timestamp(1_795_737_600_123),
    },
)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 120])
def test_a_message_is_one_line_of_a_table(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Long values are cut, control characters shown, and nothing is folded."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    write(Output(stdout=stream), [LONG], is_full=False)
    text = re.sub(r"\x1b\[\d+m", "", stream.getvalue())
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert "enqueued utc" in lines[0]
    assert "2026-11-27 00:00:00" in lines[2]
    assert "5d9259830f4cb" in lines[2]
    assert "bea9ab" not in lines[2]
    assert '{"a": 1, "text"' in lines[2]
    assert "state" not in lines[0]
    assert "\x1b[31m" not in stream.getvalue()


def test_what_is_worth_showing_has_a_column() -> None:
    """A state that is not active, a count above 0, why a message is dead."""
    dead = RemoteMessage.of(
        value={"a": 1},
        application_properties={"DeadLetterReason": "bad", "DeadLetterErrorDescription": "why"},
        annotations={"x-opt-message-state": scalars.Int(1)},
    )
    found = row(dead)
    assert (found["state"], found["reason"], found["description"]) == ("deferred", "bad", "why")
    assert found["body"] == '{"value": {"map": {"a": {"long": 1}}}}'
    assert row(RemoteMessage()) == dict.fromkeys(found, "")
    assert row(RemoteMessage(unread=b"\xff"))["body"] == '{"unread": "/w=="}'


def test_a_body_has_the_room_that_others_leave() -> None:
    """But never less than can be read."""
    rows = [{"number": "1", "body": "x" * 500}]
    assert body_width(rows, ("number", "body"), 80) == 80 - 9 - 3
    assert body_width(rows, ("number", "body"), 10) == 16


def test_everything_of_a_message_is_shown_below_one_another() -> None:
    """With `--full`; each application property has its own line."""
    stream = Terminal()
    message = RemoteMessage.of(data=b"a", application_properties={"color": "red", "n": 2**40})
    write(Output(stdout=stream), [message], is_full=True)
    text = stream.getvalue()
    assert "property color" in text
    assert '{"long": 1099511627776}' in text
