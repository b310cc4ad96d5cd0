"""Reading RabbitMQ's JSON, also when it contains values that Python cannot read.

RabbitMQ stores parameters that nest without limit, and numbers of any length. Python reads about a
thousand levels, and 4,300 digits. Values beyond that become None; the rest is read.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEPTH_MAX = 100
"""Levels of nesting that are always read: more than a definition may have."""

DIGITS_MAX = 100
"""Digits of an integer that are always read."""

_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')

_BETWEEN = re.compile(r"[\s,]*")
_ONE = json.JSONDecoder()


def read(text: str) -> Any:
    """Return the value of a JSON text, with None for values that nest too deeply or are too long.

    Raises:
        ValueError: the text is no JSON.
    """
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return json.loads(_cut(text), parse_int=_integer)


def rows(text: str) -> list[tuple[str, Any]]:
    """Return the values of a JSON list, as `read`, each with its own text.

    They are read one by one, and Python's interpreter goes on with other threads between two of
    them: so a long list that is read in a thread delays none. The text of a value is another one,
    but always the same, when some value cannot be read whole.

    Raises:
        ValueError: the text is no JSON list.
    """
    found: list[tuple[str, Any]] = []
    begin = re.match(r"\s*\[", text)
    try:
        at = _next(text, begin.end() if begin else len(text))
        while text[at] != "]":
            value, end = _ONE.raw_decode(text, at)
            found.append((text[at:end], value))
            at = _next(text, end)
    except (RecursionError, ValueError, IndexError):
        values = read(text)
        if not isinstance(values, list):
            raise ValueError("no list") from None
        return [(json.dumps(value), value) for value in values]
    return found


def _next(text: str, at: int) -> int:
    """Return the index of a list's next value, or of its end."""
    between = _BETWEEN.match(text, at)
    return at if between is None else between.end()


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= DIGITS_MAX else None


def _cut(text: str) -> str:
    """Return the text with null for each value that nests deeper than `DEPTH_MAX`."""
    kept: list[str] = []
    begin = depth = 0
    for mark in _MARK.finditer(text):
        if mark[0] in "[{":
            depth += 1
            if depth == DEPTH_MAX + 1:
                kept.append(text[begin : mark.start()] + "null")
        elif mark[0] in "]}":
            if depth == DEPTH_MAX + 1:
                begin = mark.end()
            depth -= 1
    return "".join(kept) + text[begin:]
