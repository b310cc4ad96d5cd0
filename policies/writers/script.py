"""Scripts as values: the commands that a shell shall run, before any shell's quoting."""

from __future__ import annotations

import re
from dataclasses import dataclass

from policies.writers.definitions import Document


class Unquotable(ValueError):
    """A word, such as a name, that the output's form would not pass to RabbitMQ unchanged."""


def in_windows_quotes(word: str) -> str:
    """Return a word for use between double quotes on Windows, where `""` is a quote."""
    return re.sub(r"(\\+)$", r"\1\1", re.sub(r'(\\*)"', r'\1\1""', word))


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command.

    Attributes:
        words: the program and its arguments, exactly as the program shall get them.
        document: the definitions that the command reads; `None` for none.
        takes_file: the command reads the document from a file, whose name follows the last word,
            and not on standard input.
        may_fail: whether the script goes on when the command fails.
    """

    words: tuple[str, ...]
    document: Document | None = None
    takes_file: bool = True
    may_fail: bool = False
