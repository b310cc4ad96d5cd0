"""The text of a parsed filter, or of a part of it: for sentences, and it reads as the same tree.

Names of properties are in lower case, as the tree has them. A parameter's value stands where the
parameter stood; a value that SQL has no literal for (a time, a Guid) is shown in quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from bridge.model.filters.expression import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    Named,
    NewId,
    Node,
    Not,
    Or,
    Unary,
)
from bridge.model.filters.lexer import KEYWORDS
from bridge.model.filters.message import SYSTEM_PROPERTIES, Property
from bridge.model.filters.values import Value, ValueKind, kind_of
from bridge.model.rule_values import plain

_NAME: Final = re.compile(r"[^\W\d]\w*")

_OR, _AND, _NOT, _SUM, _PRODUCT, _TIGHTEST = range(6)
_ARITHMETIC: Final = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}
"""How tightly nodes bind their parts."""


def text_of(node: Node) -> str:
    """Return the text of a condition or an expression."""
    match node:
        case Constant(value):
            return value_text(value)
        case Property():
            return property_text(node)
        case Named(name):
            return f"property({text_of(name)})"
        case NewId():
            return "newid()"
        case Unary(sign, operand):
            inner = text_of(operand)
            return f"{sign}({inner})" if isinstance(operand, _SIGNED) else f"{sign}{inner}"
        case Arithmetic(sign, left, right):
            power = _ARITHMETIC[sign]
            return f"{_part(left, power)} {sign} {_part(right, power + 1)}"
        case Comparison(name, left, right):
            return f"{text_of(left)} {name} {text_of(right)}"
        case Exists(of):
            return f"EXISTS({text_of(of)})"
        case Not(inner_condition):
            return _negated(inner_condition)
        case And(operands):
            return " AND ".join(_part(each, _NOT) for each in operands)
        case Or(operands):
            return " OR ".join(_part(each, _AND) for each in operands)
    return _tested(node)


_SIGNED: Final = (Constant, Unary, Arithmetic)
"""A sign in front of these would read otherwise: `-5` is one number, `--` a comment."""


def _tested(node: IsNull | In | Like, negation: str = "") -> str:
    match node:
        case IsNull(operand):
            return f"{text_of(operand)} IS {negation}NULL"
        case In(operand, choices):
            return f"{text_of(operand)} {negation}IN ({_listed(choices)})"
        case Like(operand, pattern, escape):
            end = "" if escape is None else f" ESCAPE {text_of(escape)}"
            return f"{text_of(operand)} {negation}LIKE {text_of(pattern)}{end}"


def _negated(operand: Node) -> str:
    if isinstance(operand, IsNull | In | Like):
        return _tested(operand, "NOT ")
    return f"NOT {text_of(operand)}" if isinstance(operand, Exists) else f"NOT ({text_of(operand)})"


def _part(node: Node, power: int) -> str:
    """Return a part's text, in parentheses if it binds less tightly than `power`."""
    match node:
        case Or():
            own = _OR
        case And():
            own = _AND
        case Arithmetic(sign):
            own = _ARITHMETIC[sign]
        case _:
            own = _TIGHTEST
    return text_of(node) if own >= power else f"({text_of(node)})"


def _listed(nodes: Iterable[Node]) -> str:
    return ", ".join(map(text_of, nodes))


def property_text(of: Property) -> str:
    """Return a property as a filter names it."""
    if of.is_system:
        return f"sys.{SYSTEM_PROPERTIES.get(of.name, name_text(of.name))}"
    return name_text(of.name)


def name_text(name: str) -> str:
    """Return the name of a user property, in brackets unless it is a plain word."""
    is_word = _NAME.fullmatch(name) is not None and all(
        each.isalpha() or each.isdecimal() or each == "_" for each in name
    )
    if is_word and name.upper() not in KEYWORDS:
        return name
    return f"[{name.replace(']', ']]')}]"


def value_text(value: Value) -> str:
    """Return a value as a filter writes it; one without a literal in quotes."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case bytes():
            return f"{len(value)} bytes"
        case datetime():
            return f"'{value.isoformat().replace('+00:00', 'Z')}'"
    if kind_of(plain(value)) is ValueKind.OTHER:
        return "a map or a list"
    return "'" + str(value).replace("'", "''") + "'"
