"""A condition in SQL that messages are held against: the grammar of a subscription's filters.

The filters' own parser and evaluation do the work. What a command adds is `body('$.a.b')`, a value
of a body of JSON: before the parser sees it, it is replaced by the name of a property, of the same
length, so that the places in the parser's errors are those in the user's text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from bridge.model.entity import Rule, SqlFilter
from bridge.model.filters.errors import FilterException, InvalidRule
from bridge.model.filters.lexer import Lexeme, TokenKind, lex
from bridge.model.filters.mismatches import mismatches
from bridge.model.filters.sql import compile_sql
from bridge.remote.body_path import BodyPath, PathRefused
from bridge.remote.message import RemoteMessage
from bridge.remote.message_view import RemoteMessageView
from bridge.wire.amqp10.errors import DecodeError

_FIRST_NAME: Final = 0xE000
"""The first character for private use: no sender's property has such a name."""


class Condition:
    """A condition that messages are held against.

    Args:
        text: the condition, as a filter writes it, with `body('$.a.b')`.
        new_id: gives what `newid()` is: `uuid.uuid4`.

    Raises:
        InvalidRule: it is not in the grammar, and the text says where; or no message can ever
            satisfy a part of it, such as one with a system property that there is not.
    """

    def __init__(self, text: str, new_id: Callable[[], UUID]) -> None:
        replaced, self._paths = _without_bodies(text)
        try:
            condition = SqlFilter(expression=replaced)
            self._filter = compile_sql(condition, new_id)
            if found := mismatches(Rule(name="where", filter=condition)):
                raise InvalidRule(" ".join(found))
        except InvalidRule as error:
            raise InvalidRule(self._named(str(error))) from None

    def takes(self, message: RemoteMessage) -> bool:
        """Return whether the condition is true for a message.

        Raises:
            FilterException: it cannot be evaluated for this one.
        """
        try:
            return bool(self._filter.predicate(RemoteMessageView(message, self._paths)))
        except DecodeError as error:
            raise FilterException(f"The message cannot be read: {error}.") from None

    def _named(self, text: str) -> str:
        """Return an error's text with the user's words for the names of values of the body."""
        for name, path in self._paths.items():
            shown = f"body('{path.text}')"
            text = text.replace(repr(name), shown).replace(name, shown)
        return text


def _without_bodies(text: str) -> tuple[str, dict[str, BodyPath]]:
    """Return the text with a name of a property for each `body(...)`, and the paths by name."""
    paths: dict[str, BodyPath] = {}
    lexemes = lex(text)
    parts, reached = [], 0
    for at, word in enumerate(lexemes):
        if not _is_body(lexemes, at):
            continue
        path, end = _argument(lexemes, at)
        name = chr(_FIRST_NAME + len(paths))
        paths[name] = path
        parts += [text[reached : word.at], f"[{name}]".ljust(end - word.at)]
        reached = end
    return "".join([*parts, text[reached:]]), paths


def _is_body(lexemes: list[Lexeme], at: int) -> bool:
    word, behind = lexemes[at], lexemes[min(at + 1, len(lexemes) - 1)]
    return (
        word.token is TokenKind.WORD
        and word.text.lower() == "body"
        and behind.token is TokenKind.OPERATOR
        and behind.text == "("
    )


def _argument(lexemes: list[Lexeme], at: int) -> tuple[BodyPath, int]:
    """Return the path in `body(...)` at a lexeme, and the position behind it."""
    word = lexemes[at]
    argument, closing = [*lexemes[at + 2 :], lexemes[-1], lexemes[-1]][:2]
    if argument.token is not TokenKind.TEXT or closing.text != ")":
        raise InvalidRule(
            f"body() at character {word.at + 1} takes one path in quotes, as in body('$.a.b')."
        )
    try:
        return BodyPath.read(argument.text), closing.at + 1
    except PathRefused as error:
        raise InvalidRule(f"body() at character {word.at + 1}: {error}.") from None
