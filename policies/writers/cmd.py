"""Commands as a batch file for cmd.exe.

`rabbitmqctl` is a batch file itself, so that a batch file must run it by `call`. `call` doubles
every caret, inside quotes too, but not the carets of a variable that it expands. Words with a caret
therefore go through variables. Inside double quotes cmd.exe changes only `%`, and `""` is a quote
for the program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from policies.writers.definitions import Document
from policies.writers.script import Command, Unquotable, in_windows_quotes

_BARE = re.compile(r"[A-Za-z0-9_./$-]+")
_UNSAFE_IN_JSON = re.compile(r"""\\u....|\\.|[^A-Za-z0-9 ._/:$@#*+?'"\[\]{}~,;=-]""")
"""All that cmd.exe could take for its own is written as `\\u....` inside JSON's strings."""

_LINE_LENGTH = 2_000
"""A line of cmd.exe has 8,191 characters at most; a token of JSON fits in what is left."""


def render(commands: Iterable[Command]) -> str:
    """Return a batch file that stops at the first command that fails; lines end as on Windows.

    Raises:
        Unquotable: an argument holds a character that cmd.exe would change.
    """
    lines = ["@echo off", "setlocal DisableDelayedExpansion", ""]
    lines += [line for command in commands for line in _lines(command)]
    return "\r\n".join(lines) + "\r\n"


def _lines(command: Command) -> list[str]:
    lines = [
        f'set "WORD{number}={_in_quotes(word)}"'
        for number, word in enumerate(command.words)
        if "^" in word
    ]
    words = [
        f'"%%WORD{number}%%"' if "^" in word else quote(word)
        for number, word in enumerate(command.words)
    ]
    ending = "" if command.may_fail else " || exit /b 1"
    if command.document is None:
        return [*lines, f"call {' '.join(words)}{ending}"]
    file = '"%DEFINITIONS%"'
    first, *rest = _json_lines(command.document)
    return [
        *lines,
        'set "DEFINITIONS=%TEMP%\\busbridge-%RANDOM%.json"',
        f">{file} echo {first}",
        *(f">>{file} echo {line}" for line in rest),
        f"call {' '.join(words)} {file}{ending}",
        f"del {file}",
    ]


def quote(word: str) -> str:
    """Return a word, which has no carets, quoted so that `call` passes it on unchanged."""
    return word if _BARE.fullmatch(word) else f'"{_in_quotes(word)}"'


def _in_quotes(word: str) -> str:
    if not word.isascii() or re.search(r"[%!\r\n\0]", word):
        raise Unquotable(f"cmd.exe would change {word!r}.")
    return in_windows_quotes(word)


def _json_lines(document: Document) -> list[str]:
    lines, line = [], ""
    for token in _tokens(document):
        if len(line) + len(token) > _LINE_LENGTH:
            lines.append(line)
            line = ""
        line += token
    return [*lines, line]


def _tokens(document: Document) -> Iterator[str]:
    """Yield JSON in pieces; a line may end between two of them."""
    for piece in json.JSONEncoder(separators=(",", ":")).iterencode(document):
        yield _UNSAFE_IN_JSON.sub(_escaped, piece)


def _escaped(unsafe: re.Match[str]) -> str:
    text = unsafe[0]
    if text.startswith("\\u"):
        return text
    char = json.loads(f'"{text}"')
    return f"\\u{ord(char):04x}"
