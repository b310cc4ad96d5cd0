"""Evaluation: trees of the grammar, compiled to closures that are called with a message.

`None` is unknown: an operator with an unknown operand gives unknown, `F AND U` is false, `T OR U`
true. AND and OR go from left to right and stop where the answer is known, so later operands cannot
fail. FilterException: a system property that does not exist, values without that operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from bridge.model.filters.compiled import Predicate
from bridge.model.filters.errors import FilterException
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
    Not,
    Or,
    Unary,
)
from bridge.model.filters.expression import Predicate as Condition
from bridge.model.filters.like import TEXT_LENGTH_MAX, compile_like
from bridge.model.filters.message import SYSTEM_PROPERTIES, FilteredMessage, Property
from bridge.model.filters.operators import arithmetic, comparison, equal, operator_of, signed
from bridge.model.filters.values import Value, kind_of

PATTERN_WORK = 4
"""The cost of a character of a computed pattern, in characters of a text."""

COPIED = 1024
"""Characters that are copied or compared in the time that LIKE takes for one character."""

NewGuid = Callable[[], UUID]
Evaluate = Callable[[FilteredMessage], Value]
Found = TypeVar("Found")


def compile_expression(node: Expression, new_id: NewGuid) -> Evaluate:
    """Return the function from a message to an expression's value, `None` for unknown."""
    match node:
        case Constant(value):
            return lambda message: value
        case Property():
            return _property(node)
        case Named(name):
            return _named(compile_expression(name, new_id))
        case NewId():
            return lambda message: new_id()
        case Unary(name, inner):
            operand = compile_expression(inner, new_id)
            return _unary(name, operand)
        case Arithmetic(name, left, right):
            return _binary(arithmetic(name), left, right, new_id)


def _property(of: Property) -> Evaluate:
    name = of.name
    if not of.is_system:
        return lambda message: message.user.get(name)
    if name in SYSTEM_PROPERTIES:
        return lambda message: message.system(name)

    def missing(message: FilteredMessage) -> Value:
        raise FilterException(f"There is no system property {name!r}.")

    return missing


def _named(name_of: Evaluate) -> Evaluate:
    def evaluate(message: FilteredMessage) -> Value:
        name = name_of(message)
        if name is None:
            return None
        if not isinstance(name, str):
            raise FilterException(f"property() takes a string, not a {kind_of(name).value}.")
        return message.user.get(name.lower())

    return evaluate


def _unary(name: str, operand: Evaluate) -> Evaluate:
    def evaluate(message: FilteredMessage) -> Value:
        value = operand(message)
        return None if value is None else signed(name, value)

    return evaluate


def _binary(
    compute: Callable[[Value, Value], Found], left: Expression, right: Expression, new_id: NewGuid
) -> Callable[[FilteredMessage], Found | None]:
    """Return the function of two expressions' values, `None` when one value is unknown."""
    left_of, right_of = compile_expression(left, new_id), compile_expression(right, new_id)

    def evaluate(message: FilteredMessage) -> Found | None:
        first = left_of(message)
        if first is None:
            return None
        second = right_of(message)
        if second is None:
            return None
        if type(first) is str:
            message.spend(len(first) // COPIED)
        return compute(first, second)

    return evaluate


def compile_condition(node: Condition, new_id: NewGuid) -> Predicate:
    """Return the test of a condition for a message, `None` for unknown."""
    match node:
        case Comparison():
            return _comparison(node, new_id)
        case IsNull(operand):
            value = compile_expression(operand, new_id)
            return lambda message: value(message) is None
        case Exists(of):
            return _exists(of)
        case In(operand, choices):
            return _in(
                compile_expression(operand, new_id),
                [compile_expression(each, new_id) for each in choices],
            )
        case Like():
            return _like(node, new_id)
        case Not(inner):
            return _not(compile_condition(inner, new_id))
        case And(inners):
            return _all_of([compile_condition(each, new_id) for each in inners])
        case Or(inners):
            return _any_of([compile_condition(each, new_id) for each in inners])


def _comparison(node: Comparison, new_id: NewGuid) -> Predicate:
    match node.left, node.right:
        case Property(False, name), Constant(value) if value is not None:
            return _user_property_and_constant(node.operator, name, value)
    return _binary(comparison(node.operator), node.left, node.right, new_id)


def _user_property_and_constant(operator: str, name: str, constant: Value) -> Predicate:
    """Return the most frequent test of filters, with as few calls as possible."""
    kind = type(constant)
    compare, test_like = comparison(operator), operator_of(operator, kind)

    def test(message: FilteredMessage) -> bool | None:
        value = message.user.get(name)
        if type(value) is kind:
            return test_like(value, constant)
        return None if value is None else compare(value, constant)

    return test


def _exists(of: Property) -> Predicate:
    if not of.is_system:
        return lambda message: of.name in message.user
    value = _property(of)
    return lambda message: value(message) is not None


def _in(operand: Evaluate, choices: list[Evaluate]) -> Predicate:
    def test(message: FilteredMessage) -> bool | None:
        value = operand(message)
        if value is None:
            return None
        found: bool | None = False
        for choice in choices:
            other = choice(message)
            if other is None:
                found = None
            elif equal(value, other):
                return True
        return found

    return test


def _like(node: Like, new_id: NewGuid) -> Predicate:
    operand = compile_expression(node.operand, new_id)
    matcher = _matcher(node, new_id)

    def test(message: FilteredMessage) -> bool | None:
        value = operand(message)
        if value is None:
            return None
        matches = matcher(message)
        if matches is None:
            return None
        if not isinstance(value, str):
            raise FilterException(f"LIKE takes a string, not a {kind_of(value).value}.")
        if len(value) > TEXT_LENGTH_MAX:
            raise FilterException(f"LIKE takes at most {TEXT_LENGTH_MAX} characters.")
        message.spend(len(value))
        return matches(value)

    return test


def _matcher(
    node: Like, new_id: NewGuid
) -> Callable[[FilteredMessage], Callable[[str], bool] | None]:
    """Return the function from a message to LIKE's test; a constant pattern is compiled once."""
    pattern = compile_expression(node.pattern, new_id)
    escape = None if node.escape is None else compile_expression(node.escape, new_id)

    def make(message: FilteredMessage) -> Callable[[str], bool] | None:
        text = pattern(message)
        mark = None if escape is None else escape(message)
        if text is None or (escape is not None and mark is None):
            return None
        if not isinstance(text, str) or not isinstance(mark, str | None):
            raise FilterException("Pattern and escape of LIKE are strings.")
        message.spend(len(text) * PATTERN_WORK)
        return compile_like(text, mark)

    if not isinstance(node.pattern, Constant) or not isinstance(node.escape, Constant | None):
        return make
    made = make(_NOTHING)
    return lambda message: made


class _Nothing:
    """The message for evaluating constants."""

    user: dict[str, Value] = {}
    properties_bytes = 0

    def spend(self, characters: int) -> None:
        pass

    def system(self, name: str) -> Value:
        return None

    def name_of(self, name: str) -> str:
        return name


_NOTHING: FilteredMessage = _Nothing()


def _not(operand: Predicate) -> Predicate:
    def test(message: FilteredMessage) -> bool | None:
        found = operand(message)
        return None if found is None else not found

    return test


def _all_of(operands: list[Predicate]) -> Predicate:
    """Return the AND of conditions."""

    def test(message: FilteredMessage) -> bool | None:
        result: bool | None = True
        for operand in operands:
            found = operand(message)
            if found is False:
                return False
            if found is None:
                result = None
        return result

    return test


def _any_of(operands: list[Predicate]) -> Predicate:
    def test(message: FilteredMessage) -> bool | None:
        result: bool | None = False
        for operand in operands:
            found = operand(message)
            if found:
                return True
            if found is None:
                result = None
        return result

    return test
