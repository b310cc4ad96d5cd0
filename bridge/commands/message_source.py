"""The messages that a command is given: a text, a file, or lines of JSON, and options."""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.input_lines import STDIN, is_again_readable, is_given, lines, whole
from bridge.commands.property_values import properties_of

if TYPE_CHECKING:
    from bridge.commands.batching import Numbered

FAULTS_SAID: Final = 5
"""Lines whose faults are said before the first message is sent."""

_FIELDS: Final = {
    "subject": ("subject", "TEXT", "Subject, which filters call sys.Label"),
    "message_id": ("message-id", "ID", "MessageId"),
    "session_id": ("session", "ID", "SessionId"),
    "content_type": ("content-type", "TYPE", "ContentType, such as application/json"),
    "correlation_id": ("correlation-id", "ID", "CorrelationId"),
    "to": ("to", "ADDRESS", "To"),
    "reply_to": ("reply-to", "ADDRESS", "ReplyTo"),
    "partition_key": ("partition-key", "KEY", "PartitionKey"),
    "time_to_live": ("time-to-live", "DURATION", "TimeToLive, such as PT5M"),
}
"""Field of a line -> its option, what it takes, and Azure's name."""


class LineRefused(WrongInput):
    """Error for a line that is no message, when messages before it were sent.

    Attributes:
        number: the line's message, from 1.
    """

    code = ExitCode.STOPPED

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


def add_message(parser: argparse.ArgumentParser, *, text_option: bool) -> None:
    """Add the options that give messages.

    Args:
        text_option: the text is an option, and a message needs none.
    """
    parser.set_defaults(needs_body=not text_option)
    group = parser.add_argument_group("message", "Options fill in what a line does not say.")
    body = group.add_mutually_exclusive_group()
    if text_option:
        body.add_argument("--text", metavar="TEXT", help="the body")
    else:
        body.add_argument("text", nargs="?", metavar="TEXT", help="the body")
    body.add_argument("--file", metavar="FILE", help="a file that is the body (-: standard input)")
    body.add_argument(
        "--lines", metavar="FILE",
        help="a file with a message in each line, as JSON (docs/message-lines.md); -: standard "
        "input, which is read so without any of these options, if it is a pipe or a file",
    )  # fmt: skip
    for field, (option, metavar, meaning) in _FIELDS.items():
        group.add_argument(f"--{option}", dest=field, metavar=metavar, help=meaning)
    group.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE", dest="properties",
        help="an application property; a value that is JSON is read as such: 5, true, "
        "'{\"long\": 5}', '\"5\"' for the text; may be given again",
    )  # fmt: skip


class MessageSource:
    """The messages of a command's options.

    Args:
        now_ms: the time, UTC ms.
        repeat: how often all messages are given.

    Raises:
        WrongInput: an option cannot be used, or there is nothing to read.
    """

    def __init__(
        self, arguments: argparse.Namespace, *, now_ms: Callable[[], int], repeat: int = 1
    ) -> None:
        self._now_ms = now_ms
        self._repeat = repeat
        self._given = _given(arguments)
        self._lines = _lines_file(arguments, has_fields=bool(self._given))
        self._fields: dict[str, Any] = {}
        if arguments.text is not None:
            self._fields = {"body": arguments.text}
        elif arguments.file is not None:
            self._fields = {"body": _body_of(whole(arguments.file))}
        if self._lines is not None and repeat > 1 and not is_again_readable(self._lines):
            raise WrongInput("--repeat reads the lines again: give them in a file.")
        self._checked = self._checked_count()

    @property
    def total(self) -> int | None:
        """The number of messages; None where it is not known yet."""
        return None if self._checked is None else self._checked * self._repeat

    def _checked_count(self) -> int | None:
        """Return the number of messages before any is sent, after a look at each.

        Raises:
            WrongInput: lines of a file are no messages.
        """
        if self._lines is None:
            self._made(self._fields, "the message")
            return 1
        if not is_again_readable(self._lines):
            return None
        count, faults = 0, []
        with Path(self._lines).open("rb") as file:
            for place, line in enumerate(file, 1):
                if line.strip():
                    count += 1
                    try:
                        self._read(line, f"{self._lines}:{place}")
                    except WrongInput as error:
                        faults.append(str(error))
        if faults:
            more = len(faults) - FAULTS_SAID
            end = [f"{more:,} lines more are wrong."] if more > 0 else []
            raise WrongInput("\n".join([*faults[:FAULTS_SAID], *end]))
        return count

    async def messages(self) -> AsyncGenerator[Numbered, None]:
        """Yield the messages.

        Raises:
            LineRefused: a line of standard input is no message.
        """
        from bridge.commands.batching import Numbered

        number = 0
        for _ in range(self._repeat):
            if self._lines is None:
                number += 1
                message = self._made(self._fields, "the message")
                yield Numbered(number, f"message {number}", message)
                continue
            place = 0
            async with aclosing(lines(self._lines)) as read:
                async for line in read:
                    place += 1
                    if not line.strip():
                        continue
                    number += 1
                    where = f"line {place}" if self._lines == STDIN else f"{self._lines}:{place}"
                    try:
                        message = self._read(line, where)
                    except WrongInput as error:
                        raise LineRefused(str(error), number) from None
                    yield Numbered(number, where, message)

    def _read(self, line: bytes, place: str) -> Any:
        from bridge.operations.lines.line_text import parsed
        from bridge.operations.lines.scalar_values import ValueRefused

        try:
            return self._made(parsed(line.decode("utf-8-sig")), place)
        except UnicodeDecodeError as error:
            raise WrongInput(f"{place}: no UTF-8 at byte {error.start + 1}.") from None
        except ValueRefused as error:
            raise WrongInput(f"{place}: {error}.") from None

    def _made(self, fields: dict[str, Any], place: str) -> Any:
        from bridge.operations.lines.exact_lines import message_of_fields
        from bridge.operations.lines.scalar_values import ValueRefused

        merged = self._given | {name: value for name, value in fields.items() if value is not None}
        own, given = fields.get("application_properties"), self._given.get("application_properties")
        if isinstance(own, dict) and isinstance(given, dict):
            merged["application_properties"] = given | own
        try:
            return message_of_fields(merged, now_ms=self._now_ms())
        except ValueRefused as error:
            raise WrongInput(f"{place}: {error}.") from None


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that options give."""
    found = {field: value for field in _FIELDS if (value := getattr(arguments, field)) is not None}
    properties = properties_of(arguments.properties)
    return found | {"application_properties": properties} if properties else found


def _body_of(raw: bytes) -> Any:
    from bridge.operations.lines.scalar_values import base64_of

    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"data": base64_of(raw)}


def _lines_file(arguments: argparse.Namespace, *, has_fields: bool) -> str | None:
    """Return the file of lines; standard input when nothing else is given.

    Args:
        has_fields: whether options give fields of a message.
    """
    if arguments.lines is not None:
        name: str = arguments.lines
        if name != STDIN and not Path(name).exists():
            raise WrongInput(f"--lines: there is no file {name!r}.")
        return name
    if arguments.text is not None or arguments.file is not None:
        return None
    if not has_fields and is_given():
        return STDIN
    if arguments.needs_body or not has_fields:
        raise WrongInput(
            "There is no message: give a text, --file or --lines (-: standard input); '' is the "
            "empty text."
        )
    return None
