"""JSON text as a tree in which every value knows its line and path.

The parser takes a byte order mark and comments, as Azure's tools do with ARM templates. It refuses
a key that is in an object twice, which JSON leaves open.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from policies.errors import Fault, Position, ReadError

DEPTH_MAX = 100
"""Levels of objects and arrays in one another; the deepest real template has about 15."""

DIGITS_MAX = 400
"""Digits of a whole number; the largest fraction that JSON's readers keep has 309."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.|[\t\r\n])*"', re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}
_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]*")

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Node:
    """A JSON value and its place; the members of an object or array are nodes as well."""

    value: Scalar | dict[str, Node] | list[Node]
    place: Position

    def __getitem__(self, key: str) -> Node:
        """Return an object's member, or a node of `None` when the object lacks the key.

        Keys are not case-sensitive, as in Azure; a key in the same case comes first.
        """
        if isinstance(self.value, dict):
            if key in self.value:
                return self.value[key]
            wanted = key.lower()
            for known, member in self.value.items():
                if known.lower() == wanted:
                    return member
        return Node(None, Position(line=self.place.line, path=self.place.path + step(key)))

    def __contains__(self, key: str) -> bool:
        """Whether an object has a member of this key, in any case."""
        return any(known.lower() == key.lower() for known in self.members)

    @property
    def members(self) -> dict[str, Node]:
        """The members of an object; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The elements of an array; empty for anything else."""
        return self.value if isinstance(self.value, list) else []

    @property
    def text(self) -> str:
        """The string, or "" for anything else."""
        return self.value if isinstance(self.value, str) else ""

    @property
    def kind(self) -> str:
        """JSON's word for the type of the value."""
        match self.value:
            case None:
                return "null"
            case bool():
                return "a boolean"
            case int() | float():
                return "a number"
            case str():
                return "a string"
            case dict():
                return "an object"
            case _:
                return "an array"

    def plain(self) -> object:
        """Return the value as `json.loads` would."""
        if isinstance(self.value, dict):
            return {key: member.plain() for key, member in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value

    def walk(self) -> Iterator[Node]:
        """Yield this node and all nodes below it, in the order of the text."""
        yield self
        for child in (*self.members.values(), *self.items):
            yield from child.walk()


def step(key: str) -> str:
    """Return a key as a part of a JSON path: `.name` or `["a name"]`."""
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key, ensure_ascii=False)}]"


def parse(text: str, source: str) -> Node:
    """Return the tree of a JSON text.

    Raises:
        ReadError: the text is no JSON; the error names the line.
    """
    return _Parser(text.removeprefix("\ufeff"), source).document()


def check_case(document: Node, source: str) -> None:
    """Raise for two keys of one object that differ by case only: Azure takes them for one key.

    The properties of a correlation filter are a user's own names and are not checked.

    Raises:
        ReadError: with every such key.
    """
    faults = []
    for node in document.walk():
        seen: dict[str, str] = {}
        for key, member in node.members.items():
            first = seen.setdefault(key.lower(), key)
            if first != key and not _OWN_KEYS.search(node.place.path):
                message = f"The key {key!r} is there already as {first!r}; case does not count."
                faults.append(Fault(place=member.place, message=message, remedy="Remove one."))
    if faults:
        raise ReadError(source, faults)


_OWN_KEYS = re.compile(r"correlationFilter\.properties$", re.IGNORECASE)


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._at = 0
        self._line_ends = [match.start() for match in re.finditer("\n", text)]

    def document(self) -> Node:
        self._space()
        node = self._value("$", 0)
        self._space()
        if self._at < len(self._text):
            raise self._error("There is more after the end of the JSON document.", "Remove it.")
        return node

    def _value(self, path: str, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise self._error(f"More than {DEPTH_MAX} levels of nesting.", "Flatten the document.")
        place = self._place(path)
        if self._takes("{"):
            return Node(self._object(path, depth), place)
        if self._takes("["):
            return Node(self._array(path, depth), place)
        if self._text.startswith('"', self._at):
            return Node(self._string(), place)
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            return Node(self._number(number[0]), place)
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return Node(value, place)
        raise self._error(f"Expected a JSON value, found {self._found()}.", "Mend the JSON.")

    def _number(self, text: str) -> int | float:
        if not text.lstrip("-").isdigit():
            return float(text)
        if len(text) > DIGITS_MAX:
            raise self._error(f"A number of {len(text)} digits.", "Write the one that is meant.")
        return int(text)

    def _object(self, path: str, depth: int) -> dict[str, Node]:
        members: dict[str, Node] = {}
        self._space()
        if self._takes("}"):
            return members
        while True:
            if not self._text.startswith('"', self._at):
                raise self._error(
                    f"Expected a key in double quotes, found {self._found()}.",
                    "Mend the JSON: no comma before the closing brace, keys in double quotes.",
                )
            key_at = self._place(path)
            key = self._string()
            if key in members:
                raise ReadError(
                    self._source,
                    [
                        Fault(
                            place=Position(line=key_at.line, path=path + step(key)),
                            message=f"The key {key!r} is there twice in one object.",
                            remedy="Remove one of them.",
                        )
                    ],
                )
            self._space()
            if not self._takes(":"):
                raise self._error(f"Expected ':' after the key {key!r}.", "Mend the JSON.")
            self._space()
            members[key] = self._value(path + step(key), depth + 1)
            self._space()
            if self._takes("}"):
                return members
            if not self._takes(","):
                raise self._error(f"Expected ',' or '}}', found {self._found()}.", "Mend the JSON.")
            self._space()

    def _array(self, path: str, depth: int) -> list[Node]:
        items: list[Node] = []
        self._space()
        if self._takes("]"):
            return items
        while True:
            items.append(self._value(f"{path}[{len(items)}]", depth + 1))
            self._space()
            if self._takes("]"):
                return items
            if not self._takes(","):
                raise self._error(f"Expected ',' or ']', found {self._found()}.", "Mend the JSON.")
            self._space()

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("A string does not end.", 'Add the closing ".')
        try:
            value = json.loads(match[0], strict=False)
        except json.JSONDecodeError as error:
            raise self._error(f"A string is malformed: {error.msg}.", "Mend the escape.") from error
        assert isinstance(value, str)
        if _SURROGATE.search(value):
            raise self._error("A string has half of a character in it.", "Mend the escape.")
        self._at = match.end()
        return value

    def _space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _takes(self, char: str) -> bool:
        if not self._text.startswith(char, self._at):
            return False
        self._at += 1
        return True

    def _found(self) -> str:
        rest = self._text[self._at : self._at + 20].split("\n")[0]
        return repr(rest) if rest else "the end of the text"

    def _place(self, path: str) -> Position:
        return Position(line=bisect_right(self._line_ends, self._at - 1) + 1, path=path)

    def _error(self, message: str, remedy: str) -> ReadError:
        fault = Fault(place=Position(line=self._place("").line), message=message, remedy=remedy)
        return ReadError(self._source, [fault])
