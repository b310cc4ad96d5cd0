"""The expression language of ARM templates: text in brackets, as a tree.

`[concat(parameters('a'), '/', variables('b')[0].name)]`: calls, texts in single quotes, whole
numbers, members by `.name` or `[index]`, both also as `.?name` and `[?index]` (null when absent).
There are no operators; functions stand for them.
Source: Azure Resource Manager, "Syntax and expressions in ARM templates".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LENGTH_MAX = 24_576
"""Characters of an expression (Azure Resource Manager limits)."""

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>[+-]?\d+)|(?P<name>[A-Za-z_][\w]*)"
    r"|(?P<mark>\.\?|\[\?|[()\[\],.]))"
)


@dataclass(frozen=True, slots=True)
class Literal:
    """A text or number."""

    value: str | int


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; the name is in lower case, with a user's namespace before a dot."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object or array."""

    of: Expression
    key: Expression
    may_be_absent: bool


Expression = Literal | Call | Member


class BadExpression(ValueError):
    """The text in brackets is no expression."""


def is_expression(text: str) -> bool:
    """Whether a text of a template is an expression; `[[` begins a plain text."""
    return text.startswith("[") and text.endswith("]") and not text.startswith("[[")


def unescape(text: str) -> str:
    """Return a plain text of a template; `[[` at its beginning means `[`."""
    return text[1:] if text.startswith("[[") else text


def parse(text: str) -> Expression:
    """Return the tree of an expression, its brackets included.

    Raises:
        BadExpression: the text is no expression, or is too long or nested too deeply.
    """
    if len(text) > LENGTH_MAX:
        raise BadExpression(f"it has more than {LENGTH_MAX} characters")
    parser = _Parser(text[1:-1])
    tree = parser.expression(0)
    parser.end()
    return tree


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        end = len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise BadExpression(f"unexpected {text[at : at + 20].strip()!r}")
            kind = match.lastgroup or ""
            self._tokens.append((kind, match[kind]))
            at = match.end()
        self._at = 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise BadExpression(f"unexpected {self._tokens[self._at][1]!r}")

    def expression(self, depth: int) -> Expression:
        if depth > 100:
            raise BadExpression("it is nested too deeply")
        kind, value = self._next()
        tree: Expression
        if kind == "text":
            tree = Literal(value[1:-1].replace("''", "'"))
        elif kind == "number":
            tree = Literal(int(value))
        elif kind == "name":
            tree = self._call(value, depth)
        else:
            raise BadExpression(f"unexpected {value!r}")
        return self._members(tree, depth)

    def _call(self, name: str, depth: int) -> Expression:
        if self._takes("."):
            name += "." + self._expect("name")
        if not self._takes("("):
            raise BadExpression(f"{name!r} is no call; texts stand in single quotes")
        arguments: list[Expression] = []
        if not self._takes(")"):
            arguments.append(self.expression(depth + 1))
            while not self._takes(")"):
                self._expect("mark", ",")
                arguments.append(self.expression(depth + 1))
        return Call(name.lower(), tuple(arguments))

    def _members(self, tree: Expression, depth: int) -> Expression:
        while True:
            if self._takes("."):
                tree = Member(tree, Literal(self._expect("name")), False)
            elif self._takes(".?"):
                tree = Member(tree, Literal(self._expect("name")), True)
            elif self._takes("[") or self._takes("[?"):
                may_be_absent = self._tokens[self._at - 1][1] == "[?"
                tree = Member(tree, self.expression(depth + 1), may_be_absent)
                self._expect("mark", "]")
            else:
                return tree

    def _takes(self, mark: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("mark", mark):
            self._at += 1
            return True
        return False

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise BadExpression("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, kind: str, value: str = "") -> str:
        found = self._next()
        if found[0] != kind or (value and found[1] != value):
            raise BadExpression(f"unexpected {found[1]!r}, expected {value or 'a ' + kind}")
        return found[1]
