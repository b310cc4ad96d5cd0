"""Messages in a table, or as lines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import Final

from bridge.commands.output import Output, Row, visible
from bridge.operations.lines.message_lines import fields_of, line_of
from bridge.remote.message import RemoteMessage

COLUMNS: Final = (
    "number",
    "enqueued_utc",
    "state",
    "count",
    "message_id",
    "session_id",
    "subject",
    "reason",
    "description",
    "body",
)
"""What a table shows; a column in which nothing is worth showing is left out."""

ALWAYS: Final = ("number", "body")

CELL_MAX: Final = 24
"""Characters of a cell but for the body; `--full` has everything."""

BODY_MIN: Final = 16
BODY_READ: Final = 400
"""Characters of a body in a table at least, and those that are looked at."""

GAP: Final = 3
"""Characters between two columns."""


def write(output: Output, messages: Sequence[RemoteMessage], *, is_full: bool) -> None:
    """Write messages: a table, all of each (`is_full`), or a line of JSON for each."""
    if not output.is_table:
        for each in messages:
            output.text(line_of(each))
    elif is_full:
        for each in messages:
            output.record(_named(fields_of(each)))
            output.text("")
    else:
        _write_rows(output, [row(each) for each in messages])


class ShownMessages:
    """Messages of any number of pages, in one table.

    What a table needs is kept until the end, not the messages: bodies can be more than the memory.

    Args:
        is_full: see `write`.
    """

    def __init__(self, output: Output, *, is_full: bool) -> None:
        self._output = output
        self._is_full = is_full
        self._rows: list[dict[str, str]] = []

    def add(self, messages: Sequence[RemoteMessage]) -> None:
        """Show messages; those of a table are shown by `end`."""
        if self._output.is_table and not self._is_full:
            self._rows.extend(map(row, messages))
        else:
            write(self._output, messages, is_full=self._is_full)

    def end(self) -> None:
        """Show the table."""
        _write_rows(self._output, self._rows)


def _write_rows(output: Output, rows: Sequence[dict[str, str]]) -> None:
    if not rows:
        return
    columns = [name for name in COLUMNS if name in ALWAYS or any(each[name] for each in rows)]
    width = body_width(rows, columns, shutil.get_terminal_size().columns)
    output.table([each | {"body": _cut(each["body"], width)} for each in rows], columns)


def _named(fields: Row) -> Row:
    """Return fields with one name for each application property."""
    found = {name: value for name, value in fields.items() if name != "application_properties"}
    properties = fields.get("application_properties")
    if isinstance(properties, dict):
        found |= {f"property {name}": value for name, value in properties.items()}
    elif properties:
        found["application_properties"] = properties
    return found


def row(message: RemoteMessage) -> dict[str, str]:
    """Return what a table shows of a message; empty is what it need not."""
    fields = fields_of(message)
    found = {name: _cut(_text(fields.get(name)), CELL_MAX) for name in COLUMNS if name in fields}
    number, count = message.sequence_number, int(message.delivery_count)
    found["number"] = "" if number is None else str(int(number))
    found["enqueued_utc"] = _text(fields.get("enqueued_time"))[:19].replace("T", " ")
    found["state"] = "" if message.state == "active" else message.state
    found["count"] = str(count) if count else ""
    found["reason"] = _cut(_text(message.dead_letter_reason), CELL_MAX)
    found["description"] = _cut(_text(message.dead_letter_error_description), CELL_MAX)
    found["body"] = _text(fields if message.unread else fields.get("body"))
    return {name: found.get(name, "") for name in COLUMNS}


def body_width(rows: Sequence[dict[str, str]], columns: Sequence[str], total: int) -> int:
    """Return how many characters of a body there is room for."""
    others = [name for name in columns if name != "body"]
    used = sum(max(len(name), *(len(each[name]) for each in rows)) + GAP for name in others)
    return max(BODY_MIN, total - used - GAP)


def _text(value: object) -> str:
    """Return the beginning of a value in one line."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return visible(" ".join(text[:BODY_READ].split()))


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
