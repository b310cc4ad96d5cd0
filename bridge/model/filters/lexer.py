"""Tokens of SQL filters and actions (Azure, SQL filter syntax).

    name       letters, digits, underscores, a letter or an underscore first; [a b] with ]] for ],
               "a b" with "" for "
    number     1894 (Int64), 1894.12 and 101.5E5 (Double)
    text       'it''s'
    parameter  @name
    operator   = <> != > >= < <= + - * / % ( ) , . ;

There are no comments: `/*` is refused, and so is `--` in a new rule (`check_comments`); a stored
one keeps its meaning, a minus of a minus. Words are keywords in any case. One pass, each character
looked at a bounded number of times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from bridge.model.filters.errors import CommentInRule, InvalidRule
from bridge.model.rules import EXPRESSION_LENGTH_MAX

KEYWORDS = frozenset(
    {"AND", "ESCAPE", "EXISTS", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"}
)

INT64_MAX = 2**63 - 1


class TokenKind(Enum):
    """The kind of a token."""

    KEYWORD = "keyword"
    WORD = "name"
    QUOTED = "quoted name"
    INTEGER = "whole number"
    DOUBLE = "number"
    TEXT = "string"
    PARAMETER = "parameter"
    OPERATOR = "operator"
    END = "end"


_NUMBERS = (TokenKind.INTEGER, TokenKind.DOUBLE)


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A token with its place.

    Attributes:
        token: the kind.
        text: keywords in upper case, names and strings without their quotes.
        at: index of the first character in the text, from 0.
    """

    token: TokenKind
    text: str
    at: int


_PATTERN = re.compile(
    r"""(?P<space>\s+)
      | (?P<double>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
      | (?P<integer>[0-9]+)
      | (?P<word>[^\W\d]\w*)
      | (?P<parameter>@\w+)
      | (?P<text>'(?:[^']|'')*')
      | (?P<bracket>\[(?:[^\]]|\]\])*\])
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<comment>/\*)
      | (?P<operator><>|!=|<=|>=|[-=<>+*/%(),.;])""",
    re.VERBOSE,
)

_NO_COMMENTS = "{!r} at character {} has no meaning here: there are no comments."

_UNCLOSED = {"'": "string", "[": "name", '"': "name"}


def lex(text: str) -> list[Lexeme]:
    """Return the tokens of a filter or action, an `END` last.

    Raises:
        InvalidRule: the text is too long, or has characters that begin no token.
    """
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise InvalidRule(
            f"The expression has {len(text)} characters; Service Bus takes {EXPRESSION_LENGTH_MAX}."
        )
    found = list(_lexemes(text))
    for number, behind in pairwise(found):
        is_next = number.token in _NUMBERS and behind.at == number.at + len(number.text)
        if is_next and behind.token in (TokenKind.WORD, TokenKind.KEYWORD, *_NUMBERS):
            raise InvalidRule(f"{behind.text!r} at character {behind.at + 1} stands in a number.")
    return found


def check_comments(text: str) -> None:
    """Refuse `--` in a new filter or action: whoever writes it means a comment.

    Raises:
        CommentInRule: two signs follow one another without a space.
        InvalidRule: see `lex`.
    """
    for sign, behind in pairwise(lex(text)):
        is_pair = sign.text == behind.text == "-" and behind.at == sign.at + 1
        if is_pair and sign.token is behind.token is TokenKind.OPERATOR:
            raise CommentInRule(_NO_COMMENTS.format("--", sign.at + 1))


def _lexemes(text: str) -> Iterator[Lexeme]:
    at = 0
    while at < len(text):
        found = _PATTERN.match(text, at)
        if found is None:
            raise InvalidRule(_stray(text, at))
        if found.lastgroup == "comment":
            raise CommentInRule(_NO_COMMENTS.format(found.group(), at + 1))
        if found.lastgroup != "space":
            yield _lexeme(found.lastgroup or "", found.group(), at)
        at = found.end()
    yield Lexeme(TokenKind.END, "", at)


def _stray(text: str, at: int) -> str:
    what = _UNCLOSED.get(text[at])
    if what is not None:
        return f"The {what} that begins at character {at + 1} does not end."
    return f"{text[at]!r} at character {at + 1} has no meaning here."


def _lexeme(group: str, raw: str, at: int) -> Lexeme:
    match group:
        case "word":
            if not all(each.isalpha() or each.isdecimal() or each == "_" for each in raw):
                raise InvalidRule(f"{raw!r} at character {at + 1} is no name; write [{raw}].")
            upper = raw.upper()
            if upper in KEYWORDS:
                return Lexeme(TokenKind.KEYWORD, upper, at)
            return Lexeme(TokenKind.WORD, raw, at)
        case "text":
            return Lexeme(TokenKind.TEXT, raw[1:-1].replace("''", "'"), at)
        case "bracket":
            return Lexeme(TokenKind.QUOTED, _named(raw[1:-1].replace("]]", "]"), at), at)
        case "quoted":
            return Lexeme(TokenKind.QUOTED, _named(raw[1:-1].replace('""', '"'), at), at)
        case "double":
            if math.isinf(float(raw)):
                raise InvalidRule(f"{raw} at character {at + 1} is beyond a Double.")
            return Lexeme(TokenKind.DOUBLE, raw, at)
        case "integer":
            return Lexeme(TokenKind.INTEGER, raw, at)
        case "parameter":
            return Lexeme(TokenKind.PARAMETER, raw, at)
    return Lexeme(TokenKind.OPERATOR, raw, at)


def _named(name: str, at: int) -> str:
    if not name:
        raise InvalidRule(f"The name at character {at + 1} is empty.")
    return name
