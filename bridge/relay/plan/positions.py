"""Where keys and values stand in a file of TOML.

Python's `tomllib` reads the values, and names the place of what is no TOML; of what it has read it
tells no place. The index here is made of a text that it has taken, so it needs to know only where
keys, strings, arrays and tables begin and end.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import Any, Final

Path = tuple[str | int, ...]
"""Names of keys, and places in arrays: `("routes", 0, "from")`."""

_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_AT_END = " (at end of document)"
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_STRINGS = (
    re.compile(r'"""(?:\\.|[^\\])*?"""(?:"{0,2})', re.DOTALL),
    re.compile(r"'''.*?'''(?:'{0,2})", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\\n])*"'),
    re.compile(r"'[^'\n]*'"),
)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Line and column, both from 1; a column counts characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


START: Final = Position(1, 1)


class NoToml(Exception):
    """Error for a text that is no TOML.

    Attributes:
        position: where it is none.
        text: why.
    """

    def __init__(self, position: Position, text: str) -> None:
        super().__init__(position, text)
        self.position = position
        self.text = text


@dataclass(slots=True)
class Positions:
    """The places of all keys and values of a text.

    Attributes:
        keys: path -> where the key begins; that of a table's or array's element: where it does.
        values: path -> start and end of the value in the text; not of tables with a header.
    """

    text: str
    keys: dict[Path, int] = field(default_factory=dict)
    values: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def of_key(self, path: Path) -> Position:
        """Return where a key stands; for one that is not there, where its table does."""
        while path and path not in self.keys:
            path = path[:-1]
        return self.at(self.keys[path]) if path else START

    def of_value(self, path: Path) -> Position:
        """Return where a value begins; for one that is not there, as `of_key`."""
        found = self.values.get(path)
        return self.of_key(path) if found is None else self.at(found[0])

    def at(self, index: int) -> Position:
        """Return the position of a character of the text."""
        before = self.text[:index]
        return Position(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)


def read_toml(text: str) -> tuple[dict[str, Any], Positions]:
    """Return what a text of TOML says, and where.

    Raises:
        NoToml: it is none.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _no_toml(text, str(error)) from None
    except RecursionError:
        raise NoToml(START, "it nests too deeply") from None
    return values, _Index(text).made()


def _no_toml(text: str, words: str) -> NoToml:
    found = _PLACE.search(words)
    if found is not None:
        return NoToml(Position(int(found[1]), int(found[2])), words[: found.start()])
    return NoToml(Positions(text).at(len(text)), words.removesuffix(_AT_END) + " at the end")


class _Index:
    """Walks over a text that `tomllib` has taken."""

    def __init__(self, text: str) -> None:
        self._found = Positions(text)
        self._text = text
        self._at = 0
        self._counts: dict[Path, int] = {}

    def made(self) -> Positions:
        """Return the positions."""
        table: Path = ()
        self._skip(_GAP)
        while self._at < len(self._text):
            if self._text.startswith("[[", self._at):
                table = self._header(2)
            elif self._text.startswith("[", self._at):
                table = self._header(1)
            else:
                self._pair(table)
            self._skip(_GAP)
        return self._found

    def _skip(self, pattern: re.Pattern[str]) -> str:
        """Pass over what matches here, and return it."""
        found = pattern.match(self._text, self._at)
        taken = found[0] if found is not None else ""
        self._at += len(taken)
        return taken

    def _header(self, brackets: int) -> Path:
        """Read `[a.b]` or `[[a.b]]` and return the path of the table."""
        start = self._at
        self._at += brackets
        names = [name for name, _ in self._dotted()]
        self._at += brackets
        path: Path = ()
        for name in names[:-1]:
            path = self._last((*path, name))
            self._found.keys.setdefault(path, start)
        path = (*path, names[-1])
        if brackets == 2:
            self._found.keys.setdefault(path, start)
            self._counts[path] = self._counts.get(path, -1) + 1
            path = (*path, self._counts[path])
        self._found.keys.setdefault(path, start)
        return path

    def _last(self, path: Path) -> Path:
        """Return the path of the last element, for an array of tables."""
        return (*path, self._counts[path]) if path in self._counts else path

    def _dotted(self) -> list[tuple[str, int]]:
        """Read a key and return its parts, each with its place."""
        found = []
        while True:
            self._skip(_SPACE)
            start = self._at
            raw = self._skip(_BARE) or self._string()
            is_quoted = raw[0] in "\"'"
            found.append((tomllib.loads(f"x={raw}")["x"] if is_quoted else raw, start))
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return found
            self._at += 1

    def _pair(self, table: Path) -> None:
        """Read `key = value`."""
        path = table
        for name, start in self._dotted():
            path = (*path, name)
            self._found.keys.setdefault(path, start)
        self._at += 1
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: Path) -> None:
        start = self._at
        match self._text[start]:
            case "[":
                self._elements(path)
            case "{":
                self._inline(path)
            case '"' | "'":
                self._string()
            case _:
                self._at += len(self._skip_back())
        self._found.values[path] = (start, self._at)

    def _skip_back(self) -> str:
        """Return a number, a time or a boolean without the spaces behind it."""
        found = _SCALAR.match(self._text, self._at)
        return found[0].rstrip() if found is not None else ""

    def _string(self) -> str:
        for pattern in _STRINGS:
            if taken := self._skip(pattern):
                return taken
        raise AssertionError(f"no string at {self._found.at(self._at)}")

    def _elements(self, path: Path) -> None:
        self._at += 1
        count = 0
        while True:
            self._skip(_GAP)
            if self._text[self._at] == "]":
                break
            self._found.keys.setdefault((*path, count), self._at)
            self._value((*path, count))
            count += 1
            self._skip(_GAP)
            if self._text[self._at] == ",":
                self._at += 1
        self._at += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip(_GAP)
            if self._text[self._at] == "}":
                break
            self._pair(path)
            self._skip(_GAP)
            if self._text[self._at] == ",":
                self._at += 1
        self._at += 1
