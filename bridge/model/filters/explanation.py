"""Why a rule takes a message, or does not: which comparison fails, on which value.

    explain(rule, message, new_id).takes      # as the engine decides
    explain(rule, message, new_id).reasons    # sentences, when it does not

The decision is that of the compiled filter (`rules.compile_filter`); this module only asks the same
filter's parts, one by one, for the one that is not true.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bridge.model.entity import CorrelationFilter, FalseFilter, Rule, SqlFilter
from bridge.model.filters.action import compile_action
from bridge.model.filters.changes import Changes
from bridge.model.filters.correlation import compared, holds
from bridge.model.filters.errors import FilterException, InvalidRule
from bridge.model.filters.evaluation import NewGuid, compile_condition, compile_expression
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
    Predicate,
    Unary,
)
from bridge.model.filters.message import (
    SYSTEM_PROPERTIES,
    FilteredMessage,
    Property,
    similar_system,
)
from bridge.model.filters.parser import parse_filter
from bridge.model.filters.rules import compile_filter
from bridge.model.filters.text import name_text, property_text, text_of, value_text
from bridge.model.filters.values import Value, kind_of

SHOWN_MAX: Final = 100
"""Characters of a value in a sentence."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a rule makes of a message.

    Attributes:
        takes: whether the filter takes it.
        reasons: sentences, empty when it does.
        failure: why the filter or the action cannot be evaluated for it, else empty; Service Bus
            then dead-letters the message in a subscription that wants so, and drops it in another.
        changes: what the rule's action makes of the copy.
    """

    takes: bool
    reasons: tuple[str, ...] = ()
    failure: str = ""
    changes: Changes = ()


def explain(rule: Rule, message: FilteredMessage, new_id: NewGuid) -> Explanation:
    """Return what a rule makes of a message."""
    try:
        takes = bool(compile_filter(rule.filter, new_id).predicate(message))
        action = compile_action(rule.action, new_id, rule.action_parameters)
    except InvalidRule as error:
        return Explanation(False, (f"The rule cannot be read: {error}",), str(error))
    except FilterException as error:
        return Explanation(False, _reasons(rule, message, new_id), str(error))
    if not takes:
        return Explanation(False, _reasons(rule, message, new_id))
    try:
        return Explanation(True, changes=() if action is None else action(message))
    except FilterException as error:
        return Explanation(True, (f"The action fails: {error}",), str(error))


def _reasons(rule: Rule, message: FilteredMessage, new_id: NewGuid) -> tuple[str, ...]:
    reader = _Reader(message, new_id)
    match rule.filter:
        case SqlFilter(expression=text, parameters=parameters):
            found = reader.against(parse_filter(text, dict(parameters)))
        case CorrelationFilter() as correlation:
            found = _of_fields(correlation, reader)
        case FalseFilter():
            found = iter(("The filter is false for every message.",))
        case _:
            found = iter(())
    return tuple(dict.fromkeys(found))


def _of_fields(source: CorrelationFilter, reader: _Reader) -> Iterator[str]:
    """Yield a sentence for each field that is another one in the message."""
    for of, value in compared(source):
        found = of.read(reader.message)
        if holds(found, value):
            continue
        facts = reader.fact(of, value)
        if found is not None and kind_of(found) is not kind_of(value):
            facts += f", a {kind_of(found).value}, and not a {kind_of(value).value}"
        yield f"{property_text(of)} = {value_text(value)}: {facts}"


class _Reader:
    """Asks the parts of a filter about a message."""

    def __init__(self, message: FilteredMessage, new_id: NewGuid) -> None:
        self.message = message
        self._new_id = new_id

    def against(self, node: Predicate) -> Iterator[str]:
        """Yield a sentence for each part because of which a condition is not true."""
        match node:
            case And(operands):
                for each in operands:
                    yield from self.against(each)
                return
            case Or(operands) if self._holds(node) is not True:
                yield "; and ".join(
                    sentence for each in operands for sentence in self.against(each)
                )
                return
        holds = self._holds(node)
        if isinstance(holds, str):
            yield f"{text_of(node)} fails: {holds} {_sentence(self._facts(node))}".rstrip()
        elif not holds:
            yield f"{text_of(node)}: {', '.join(self._facts(node)) or 'it never holds'}"

    def _holds(self, node: Predicate) -> bool | str | None:
        """Return the engine's answer, or why it cannot give one."""
        try:
            return compile_condition(node, self._new_id)(self.message)
        except FilterException as error:
            return str(error)

    def _facts(self, node: Predicate) -> list[str]:
        """Return what the message has of a condition's properties."""
        expected = _only_constant(node)
        return list(dict.fromkeys(self.fact(of, expected) for of in self._properties(node)))

    def fact(self, of: Property, expected: Value = None) -> str:
        """Return what the message has of a property; `expected` is what a filter compares it to."""
        if of.is_system and of.name not in SYSTEM_PROPERTIES:
            return f"there is no system property {of.name!r}{similar_system(of.name)}"
        value = of.read(self.message)
        name = property_text(of)
        if value is None:
            if not of.is_system and of.name in self.message.user:
                return f"{name} is null"
            return f"the message has no {name}{self._similar(of)}"
        text = value_text(value)
        shown = text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."
        spelt = name if of.is_system else name_text(self.message.name_of(of.name))
        is_case = (
            isinstance(value, str)
            and isinstance(expected, str)
            and value != expected
            and value.casefold() == expected.casefold()
        )
        return f"{spelt} is {shown}{' (case counts)' if is_case else ''}"

    def _similar(self, of: Property) -> str:
        """Return a hint at a property that the message has and that may be meant."""
        if of.is_system:
            return ""
        if of.name in SYSTEM_PROPERTIES:
            value = self.message.system(of.name)
            if isinstance(value, str):
                return f" (sys.{SYSTEM_PROPERTIES[of.name]} is {value_text(value)})"
        close = difflib.get_close_matches(of.name, list(self.message.user), 1)
        return f" (it has {name_text(self.message.name_of(close[0]))})" if close else ""

    def _properties(self, node: Predicate | Expression) -> Iterator[Property]:
        """Yield the properties that a condition or an expression reads."""
        match node:
            case Property():
                yield node
            case Named(name):
                yield from self._properties(name)
                yield from self._computed(name)
            case Constant() | NewId():
                return
            case Comparison(_, left, right) | Arithmetic(_, left, right):
                yield from self._properties(left)
                yield from self._properties(right)
            case IsNull(operand) | Exists(operand) | Unary(_, operand):
                yield from self._properties(operand)
            case In(operand, choices):
                for each in (operand, *choices):
                    yield from self._properties(each)
            case Like(operand, pattern, escape):
                for part in (operand, pattern, escape):
                    if part is not None:
                        yield from self._properties(part)
            case Not(inner):
                yield from self._properties(inner)
            case And(operands) | Or(operands):
                for operand_of in operands:
                    yield from self._properties(operand_of)

    def _computed(self, name: Expression) -> Iterator[Property]:
        """Yield the property that `property(name)` reads."""
        try:
            found = compile_expression(name, self._new_id)(self.message)
        except FilterException:
            return
        if isinstance(found, str):
            yield Property(False, found.lower())


def _only_constant(node: Predicate) -> Value:
    """Return the constant that a comparison compares its property to, if there is one."""
    match node:
        case Comparison("=", _, Constant(value)) | Comparison("=", Constant(value), _):
            return value
        case In(_, (Constant(value),)):
            return value
    return None


def _sentence(facts: list[str]) -> str:
    text = ", ".join(facts)
    if not text:
        return ""
    # A property's name keeps its case: a capital would make it another's.
    is_prose = text.startswith(("the ", "there "))
    return f"{text[0].upper()}{text[1:]}." if is_prose else f"Here {text}."
