"""Scripts as values: the commands that a shell shall run, before any shell's quoting."""

from __future__ import annotations

from dataclasses import dataclass

from policies.writers.definitions import Document


class Unquotable(ValueError):
    """A word that cannot be written in this shell so that the program gets it unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command.

    Attributes:
        words: the program and its arguments, exactly as the program shall get them.
        document: what it reads: on standard input, or from a file named after the last word.
        may_fail: whether the script goes on when it fails.
    """

    words: tuple[str, ...]
    document: Document | None = None
    may_fail: bool = False
