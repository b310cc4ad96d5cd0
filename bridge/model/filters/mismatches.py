"""Operators of a rule that no message can satisfy, found before the first message.

An expression has the kinds that its value may have: a user property any kind, a system property the
kind that Azure gives it. An operator that takes none of the kinds of its operands fails, or is
unknown, for every message (Azure, SQL filter syntax: C#'s operators). The operators themselves are
asked, with one value of each kind: their rules stand in `operators` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import product
from uuid import UUID

from bridge.model.entity import Rule, SqlFilter
from bridge.model.filters.action import SETTABLE
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
    Predicate,
    Set,
    Statement,
    Unary,
)
from bridge.model.filters.message import SYSTEM_PROPERTIES, Property, similar_system
from bridge.model.filters.operators import arithmetic, comparison, signed
from bridge.model.filters.parser import parse_action, parse_filter
from bridge.model.filters.text import text_of
from bridge.model.filters.values import Value, ValueKind, kind_of

Kinds = frozenset[ValueKind]
"""The kinds that a value may have; empty when it is always null."""

_SAMPLES: dict[ValueKind, Value] = {
    ValueKind.NUMBER: 1,
    ValueKind.TEXT: "a",
    ValueKind.BOOLEAN: True,
    ValueKind.BINARY: b"a",
    ValueKind.GUID: UUID(int=1),
    ValueKind.TIME: datetime(2020, 1, 1, tzinfo=UTC),
    ValueKind.SPAN: timedelta(1),
}
_ANY: Kinds = frozenset(_SAMPLES)
_NULL: Kinds = frozenset()

_SYSTEM_KINDS: dict[str, ValueKind] = {
    **dict.fromkeys(
        ("deliverycount", "enqueuedsequencenumber", "sequencenumber", "size", "state"),
        ValueKind.NUMBER,
    ),
    **dict.fromkeys(
        ("enqueuedtimeutc", "expiresatutc", "lockeduntilutc", "scheduledenqueuetimeutc"),
        ValueKind.TIME,
    ),
    "forcepersistence": ValueKind.BOOLEAN,
    "locktoken": ValueKind.GUID,
    "timetolive": ValueKind.SPAN,
}
"""The kinds of system properties that are no strings."""


def mismatches(rule: Rule) -> tuple[str, ...]:
    """Return a sentence for each operator of a rule that no message can satisfy.

    Raises:
        InvalidRule: the filter or the action is not in the grammar.
    """
    found = _Mismatches()
    if isinstance(rule.filter, SqlFilter):
        found.read_condition(parse_filter(rule.filter.expression, dict(rule.filter.parameters)))
    if rule.action.strip():
        for statement in parse_action(rule.action, dict(rule.action_parameters)):
            found.read_statement(statement)
    return tuple(dict.fromkeys(found.sentences))


class _Mismatches:
    """Reads trees from the leaves to the root, and keeps a sentence for each mismatch."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def read_condition(self, node: Predicate) -> None:
        """Note the operators of a condition that no message can satisfy."""
        match node:
            case Comparison(name, left, right):
                self._binary(name, left, right)
            case IsNull(operand) | Exists(operand):
                self._kinds(operand)
            case In(operand, choices):
                for choice in choices:
                    self._binary("=", operand, choice)
            case Like(operand, pattern, _):
                self._like(operand, pattern)
            case Not(inner):
                self.read_condition(inner)
            case And(inners) | Or(inners):
                for inner in inners:
                    self.read_condition(inner)

    def read_statement(self, node: Statement) -> None:
        """Note what fails a statement of an action for every message."""
        of = node.property
        if of.is_system and of.name in SYSTEM_PROPERTIES and of.name not in SETTABLE:
            self.sentences.append(f"{text_of(of)} cannot be changed.")
        self._kinds(of)
        if isinstance(node, Set):
            self._kinds(node.value)

    def _kinds(self, node: Expression) -> Kinds:
        match node:
            case Constant():
                return _NULL if node.kind is None else frozenset({node.kind})
            case Property(True, name):
                if name in SYSTEM_PROPERTIES:
                    return frozenset({_SYSTEM_KINDS.get(name, ValueKind.TEXT)})
                self.sentences.append(
                    f"There is no system property {name!r}{similar_system(name)}."
                )
            case Named(of):
                given = self._kinds(of)
                if given and ValueKind.TEXT not in given:
                    self.sentences.append(f"property() takes a string, not {_a(given)}.")
            case NewId():
                return frozenset({ValueKind.GUID})
            case Unary(sign, inner):
                return self._signed(sign, inner)
            case Arithmetic(name, left, right):
                return self._binary(name, left, right)
        return _ANY

    def _signed(self, sign: str, inner: Expression) -> Kinds:
        given = self._kinds(inner)
        found = frozenset(kind for kind in given if _takes_sign(sign, kind))
        if given and not found:
            self.sentences.append(f"The sign {sign} does not take {_a(given)}.")
            return _ANY
        return found

    def _binary(self, name: str, left: Expression, right: Expression) -> Kinds:
        first, second = self._kinds(left), self._kinds(right)
        if not first or not second:
            return _NULL
        results = _results(name)
        found = frozenset(results[pair] for pair in product(first, second) if pair in results)
        if not found:
            self.sentences.append(
                f"{text_of(left)} {name} {text_of(right)}: there is no such operator for "
                f"{_a(first)} and {_a(second)}."
            )
        return found or _ANY

    def _like(self, operand: Expression, pattern: Expression) -> None:
        for each in (operand, pattern):
            given = self._kinds(each)
            if given and ValueKind.TEXT not in given:
                self.sentences.append(
                    f"{text_of(operand)} LIKE {text_of(pattern)}: LIKE takes strings, not "
                    f"{_a(given)}."
                )


@lru_cache
def _results(name: str) -> Mapping[tuple[ValueKind, ValueKind], ValueKind]:
    """Return the pairs of kinds that an operator takes, and the kind of each result."""
    operate = arithmetic(name) if name in "+-*/%" else comparison(name)
    found: dict[tuple[ValueKind, ValueKind], ValueKind] = {}
    for left, right in product(_SAMPLES, repeat=2):
        try:
            found[left, right] = kind_of(operate(_SAMPLES[left], _SAMPLES[right]))
        except FilterException:
            continue
    return found


@lru_cache
def _takes_sign(sign: str, kind: ValueKind) -> bool:
    try:
        signed(sign, _SAMPLES[kind])
    except FilterException:
        return False
    return True


def _a(kinds: Kinds) -> str:
    """Return kinds in words."""
    return " or ".join(f"a {each.value}" for each in ValueKind if each in kinds)
