"""The grammar of SQL filters and actions, by precedence climbing: text -> tree.

    binds least   OR
                  AND
                  NOT
                  = <> != > >= < <=, IS NULL, IN, LIKE (not one after the other)
                  + -
                  * / %
    binds most    unary + -

Predicates and expressions are told apart by their nodes, not by their places: `(` begins either.
Questions that Azure's pages leave open are in docs/filters.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

from bridge.model.filters.errors import FilterException, InvalidRule
from bridge.model.filters.expression import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    Named,
    NewId,
    Node,
    Not,
    Or,
    Predicate,
    Remove,
    Set,
    Statement,
    Unary,
)
from bridge.model.filters.lexer import INT64_MAX, Lexeme, TokenKind, lex
from bridge.model.filters.like import compile_like
from bridge.model.filters.message import ALIASES, Property
from bridge.model.filters.values import Value, ValueKind, kind_of
from bridge.model.rule_values import plain

DEPTH_MAX = 64
"""Limit of the nesting of an expression, parentheses and operators counted."""

STATEMENTS_MAX = 32
"""Statements of an action (Azure, Service Bus quotas)."""

_NONE, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN = range(8)

_POWERS = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "<>", "!=", ">", ">=", "<", "<="), _COMPARISON),
    **dict.fromkeys(("IS", "IN", "LIKE", "NOT"), _COMPARISON),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
}

_SCOPES = {"SYS": True, "USER": False}
_EXPRESSIONS = get_args(Expression)
_PREDICATES = get_args(Predicate)


def parse_filter(text: str, parameters: Mapping[str, Value] | None = None) -> Predicate:
    """Return the tree of a SQL filter.

    Args:
        text: the filter.
        parameters: values by `@name`.

    Raises:
        InvalidRule: the text is not in the grammar, too long, too deep, or lacks a parameter's
            value.
    """
    parser = _Parser(text, parameters or {})
    found = parser.parse(_NONE)
    parser.end()
    return parser.predicate(found)


def parse_action(text: str, parameters: Mapping[str, Value] | None = None) -> list[Statement]:
    """Return the statements of a SQL action, at least one; raises as `parse_filter` does."""
    parser = _Parser(text, parameters or {})
    found = [parser.statement()]
    while not parser.is_at_end():
        if len(found) == STATEMENTS_MAX:
            raise parser.refusal(f"An action has at most {STATEMENTS_MAX} statements")
        found.append(parser.statement())
    return found


class _Parser:
    """Reads tokens from left to right; every method stops behind the returned node."""

    def __init__(self, text: str, parameters: Mapping[str, Value]) -> None:
        self._lexemes = lex(text)
        self._parameters = parameters
        self._at = 0
        self._level = 0
        self._depths: dict[int, tuple[int, object]] = {}

    def parse(self, power: int) -> Node:
        """Return the node that operators of more than `power` bind together."""
        self._level += 1
        if self._level > DEPTH_MAX:
            raise self._too_deep()
        left = self._prefix()
        while (found := self._infix_power()) > power:
            left = self._infix(left, found)
        self._level -= 1
        return left

    def predicate(self, node: Node) -> Predicate:
        """Return a node, checked to be a condition."""
        if isinstance(node, _EXPRESSIONS):
            raise self.refusal(
                "A value stands where a condition is expected; compare it, as in x = TRUE"
            )
        return node  # type: ignore[return-value]

    def expression(self, node: Node) -> Expression:
        """Return a node, checked to have a value."""
        if isinstance(node, _PREDICATES):
            raise self.refusal("A condition stands where a value is expected")
        return node  # type: ignore[return-value]

    def statement(self) -> Statement:
        """Return a statement of an action, and skip the semicolons behind it."""
        word = self._next()
        verb = word.text.upper() if word.token is TokenKind.WORD else ""
        if verb not in ("SET", "REMOVE"):
            raise _unexpected(word, "SET or REMOVE")
        target, name = self._property(self._next())
        if verb == "SET":
            self._expect("=")
            value = self.expression(self.parse(_COMPARISON))
            found: Statement = Set(target, name, value)
        else:
            found = Remove(target, name)
        while self._take(";"):
            pass
        return found

    def is_at_end(self) -> bool:
        """Whether all tokens are read."""
        return self._peek().token is TokenKind.END

    def end(self) -> None:
        """Check that all tokens are read."""
        if not self.is_at_end():
            raise _unexpected(self._peek(), "the end")

    def refusal(self, why: str) -> InvalidRule:
        """Return the error for what stands before the next token."""
        return InvalidRule(f"{why} (before character {self._peek().at + 1}).")

    def _made(self, node: Node, *parts: Node) -> Node:
        """Note the depth of a node."""
        depth = 1 + max(self._depths.get(id(part), (0, part))[0] for part in parts)
        if depth > DEPTH_MAX:
            raise self._too_deep()
        # The node is kept, so that no other node gets its id.
        self._depths[id(node)] = depth, node
        return node

    def _prefix(self) -> Node:
        lexeme = self._next()
        match lexeme.token:
            case TokenKind.INTEGER:
                return _integer(lexeme, 1)
            case TokenKind.DOUBLE:
                return Constant(float(lexeme.text))
            case TokenKind.TEXT:
                return Constant(lexeme.text)
            case TokenKind.PARAMETER:
                return self._parameter(lexeme)
            case TokenKind.WORD | TokenKind.QUOTED:
                if lexeme.token is TokenKind.WORD and self._is_operator("("):
                    return self._function(lexeme)
                return self._property(lexeme)[0]
            case TokenKind.KEYWORD if lexeme.text in _CONSTANTS:
                return _CONSTANTS[lexeme.text]
            case TokenKind.KEYWORD if lexeme.text == "NOT":
                operand = self.predicate(self.parse(_NOT))
                return self._made(Not(operand), operand)
            case TokenKind.KEYWORD if lexeme.text == "EXISTS":
                self._expect("(")
                operand_of = self._property(self._next())[0]
                self._expect(")")
                return Exists(operand_of)
            case TokenKind.OPERATOR if lexeme.text in "+-":
                return self._sign(lexeme)
            case TokenKind.OPERATOR if lexeme.text == "(":
                inner = self.parse(_NONE)
                self._expect(")")
                return inner
        raise _unexpected(lexeme, "a value or a condition")

    def _sign(self, sign: Lexeme) -> Node:
        if sign.text == "-" and self._peek().token is TokenKind.INTEGER:
            return _integer(self._next(), -1)
        operand = self.expression(self.parse(_SIGN))
        return self._made(Unary(sign.text, operand), operand)

    def _infix_power(self) -> int:
        lexeme = self._peek()
        if lexeme.token in (TokenKind.OPERATOR, TokenKind.KEYWORD):
            return _POWERS.get(lexeme.text, _NONE)
        return _NONE

    def _infix(self, left: Node, power: int) -> Node:
        operator = self._next()
        if power in (_OR, _AND):
            return self._joined(left, power)
        operand = self.expression(left)
        if power in (_SUM, _PRODUCT):
            right = self.expression(self.parse(power))
            return self._made(Arithmetic(operator.text, operand, right), operand, right)
        make = _TESTS.get(operator.text)
        if make is not None:
            return make(self, operand)
        right = self.expression(self.parse(_COMPARISON))
        name = "<>" if operator.text == "!=" else operator.text
        return self._made(Comparison(name, operand, right), operand, right)

    def _joined(self, left: Node, power: int) -> Node:
        """Return AND or OR of the left and right conditions, flat."""
        kind: type[And] | type[Or] = And if power == _AND else Or
        parts: list[Predicate] = []
        for each in (self.predicate(left), self.predicate(self.parse(power))):
            parts += each.operands if isinstance(each, kind) else (each,)
        return self._made(kind(tuple(parts)), *parts)

    def _is(self, operand: Expression) -> Node:
        is_not = self._take("NOT")
        self._expect("NULL")
        if not isinstance(operand, Property | Named):
            raise self.refusal("IS NULL stands behind a property")
        found = self._made(IsNull(operand), operand)
        return self._made(Not(self.predicate(found)), found) if is_not else found

    def _in(self, operand: Expression) -> Node:
        self._expect("(")
        choices = [self.expression(self.parse(_NONE))]
        while self._take(","):
            choices.append(self.expression(self.parse(_NONE)))
        self._expect(")")
        return self._made(In(operand, tuple(choices)), operand, *choices)

    def _like(self, operand: Expression) -> Node:
        pattern = self.expression(self.parse(_COMPARISON))
        escape = None
        if self._take("ESCAPE"):
            escape = self.expression(self.parse(_COMPARISON))
        self._check_like(pattern, escape)
        parts = [pattern] if escape is None else [pattern, escape]
        return self._made(Like(operand, pattern, escape), operand, *parts)

    def _check_like(self, pattern: Expression, escape: Expression | None) -> None:
        """Refuse a constant pattern, or a constant escape, that no text can be held against."""
        said = pattern.value if isinstance(pattern, Constant) else ""
        mark = escape.value if isinstance(escape, Constant) else None
        if not isinstance(said, str | None) or not isinstance(mark, str | None):
            raise self.refusal("Pattern and escape of LIKE are strings")
        if isinstance(pattern, Constant) and isinstance(escape, Constant | None):
            try:
                compile_like(said or "", mark)
            except FilterException as error:
                raise self.refusal(str(error).rstrip(".")) from None

    def _not(self, operand: Expression) -> Node:
        """Return NOT IN or NOT LIKE."""
        operator = self._next()
        if operator.text not in ("IN", "LIKE") or operator.token is not TokenKind.KEYWORD:
            raise _unexpected(operator, "IN or LIKE")
        found = _TESTS[operator.text](self, operand)
        return self._made(Not(self.predicate(found)), found)

    def _function(self, name: Lexeme) -> Node:
        self._expect("(")
        match name.text.upper():
            case "NEWID":
                found: Node = NewId()
            case "PROPERTY" | "P":
                argument = self.expression(self.parse(_NONE))
                found = self._made(Named(argument), argument)
            case _:
                raise InvalidRule(
                    f"There is no function {name.text!r} (at character {name.at + 1}); there are "
                    "newid(), property() and p()."
                )
        self._expect(")")
        return found

    def _property(self, first: Lexeme) -> tuple[Property, str]:
        """Return the property that begins with this token, and the name as written."""
        is_system = False
        name = first
        if first.token is TokenKind.WORD and self._take("."):
            scope = _SCOPES.get(first.text.upper())
            if scope is None:
                raise InvalidRule(
                    f"{first.text!r} at character {first.at + 1} is no scope; there are sys and "
                    f"user. Write [{first.text}.{self._peek().text}] for a property of that name."
                )
            is_system, name = scope, self._next()
        if name.token not in (TokenKind.WORD, TokenKind.QUOTED):
            raise _unexpected(name, "a property")
        lower = name.text.lower()
        return Property(is_system, ALIASES.get(lower, lower) if is_system else lower), name.text

    def _parameter(self, lexeme: Lexeme) -> Constant:
        for name in (lexeme.text, lexeme.text[1:]):
            if name in self._parameters:
                return Constant(_checked(lexeme, self._parameters[name]))
        raise InvalidRule(f"The parameter {lexeme.text} at character {lexeme.at + 1} has no value.")

    def _peek(self) -> Lexeme:
        return self._lexemes[self._at]

    def _next(self) -> Lexeme:
        lexeme = self._lexemes[self._at]
        if lexeme.token is not TokenKind.END:
            self._at += 1
        return lexeme

    def _is_operator(self, text: str) -> bool:
        lexeme = self._peek()
        return lexeme.text == text and lexeme.token in (TokenKind.OPERATOR, TokenKind.KEYWORD)

    def _take(self, text: str) -> bool:
        if self._is_operator(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise _unexpected(self._peek(), repr(text))

    def _too_deep(self) -> InvalidRule:
        return self.refusal(f"The expression nests deeper than {DEPTH_MAX}")


_TESTS: dict[str, Callable[[_Parser, Expression], Node]] = {
    "IS": _Parser._is,
    "IN": _Parser._in,
    "LIKE": _Parser._like,
    "NOT": _Parser._not,
}

_CONSTANTS = {"TRUE": Constant(True), "FALSE": Constant(False), "NULL": Constant(None)}


def _integer(lexeme: Lexeme, sign: int) -> Constant:
    # More digits than an Int64 has are not worth converting.
    digits = lexeme.text.lstrip("0")
    value = sign * int(digits or "0") if len(digits) <= len(str(INT64_MAX)) else INT64_MAX + 1
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise InvalidRule(f"{lexeme.text} at character {lexeme.at + 1} is beyond an Int64.")
    return Constant(value)


def _checked(name: Lexeme, value: Value) -> Value:
    compared = plain(value)
    if compared is not None and kind_of(compared) is ValueKind.OTHER:
        raise InvalidRule(
            f"The parameter {name.text} at character {name.at + 1} is a {type(value).__name__}."
        )
    return compared


def _unexpected(lexeme: Lexeme, wanted: str) -> InvalidRule:
    what = "The end" if lexeme.token is TokenKind.END else repr(lexeme.text)
    return InvalidRule(f"{what} at character {lexeme.at + 1}: {wanted} is expected.")
