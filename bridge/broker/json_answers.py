"""JSON as RabbitMQ answers it: whatever somebody has stored there, the rest is read.

RabbitMQ takes parameters that nest without end, and Python reads about a thousand levels.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEPTH_MAX = 100
"""Levels that are read in any case: above those that a definition may have."""

_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def read(text: str) -> Any:
    """Return what a text says; where it nests too deeply for Python, null from `DEPTH_MAX` on.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_cut(text))


def _cut(text: str) -> str:
    """Return the text with null for what nests deeper than `DEPTH_MAX`."""
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
