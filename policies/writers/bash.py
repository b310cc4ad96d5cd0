"""Commands as a script for bash."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable

from policies.writers.script import Command, Unquotable

_END = "DEFINITIONS"


def render(commands: Iterable[Command]) -> str:
    """Return a script that stops at the first command that fails.

    Raises:
        Unquotable: an argument holds a NUL.
    """
    lines = ["#!/usr/bin/env bash", "set -euo pipefail", ""]
    lines += [line for command in commands for line in _lines(command)]
    return "\n".join(lines) + "\n"


def _lines(command: Command) -> list[str]:
    line = " ".join(quote(word) for word in command.words)
    if command.may_fail:
        line += " || true"
    if command.document is None:
        return [line]
    text = json.dumps(command.document, indent=1)
    if not command.takes_file:
        return [f"{line} <<'{_END}'", text, _END]
    return [
        "definitions=$(mktemp)",
        """trap 'rm -f "$definitions"' EXIT""",
        f"""cat >"$definitions" <<'{_END}'""",
        text,
        _END,
        "# Called by root, the rabbitmqctl of Linux packages runs as the user rabbitmq.",
        'if [ "$(id -u)" = 0 ]; then chown rabbitmq "$definitions" 2>/dev/null || true; fi',
        f'{line} "$definitions"',
        'rm -f "$definitions"',
    ]


def quote(word: str) -> str:
    """Return a word quoted so that bash passes it to a program unchanged."""
    if "\0" in word:
        raise Unquotable("No shell can pass a NUL.")
    return shlex.quote(word)
