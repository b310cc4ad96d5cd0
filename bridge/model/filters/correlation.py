"""Correlation filters: every given field equals the message's; case counts (Azure, topic filters).

A value of another type is another value: such a filter never fails.
"""

from __future__ import annotations

from bridge.model.entity import CorrelationFilter
from bridge.model.filters.compiled import CompiledFilter, Term
from bridge.model.filters.errors import FilterException, InvalidRule
from bridge.model.filters.message import FilteredMessage, Property
from bridge.model.filters.operators import equal
from bridge.model.filters.values import Value, ValueKind, kind_of
from bridge.model.rule_values import plain
from bridge.model.rules import CORRELATION_FIELDS


def compile_correlation(source: CorrelationFilter) -> CompiledFilter:
    """Return the filter; InvalidRule for no fields, or for a value without operators."""
    pairs = compared(source)
    if not pairs:
        raise InvalidRule("A correlation filter names at least one field or property.")
    for of, value in pairs:
        if kind_of(value) is ValueKind.OTHER:
            raise InvalidRule(f"A correlation filter cannot compare {of.name!r} with {value!r}.")
    terms = [Term.equals(of, value) for of, value in pairs]

    def predicate(message: FilteredMessage) -> bool:
        return all(holds(of.read(message), expected) for of, expected in pairs)

    # The class stands beside the value: 1, 1.0 and True are equal in Python.
    identity = frozenset((of, type(value).__name__, value) for of, value in pairs)
    return CompiledFilter(("correlation", identity), predicate, tuple(dict.fromkeys(terms)))


def compared(source: CorrelationFilter) -> list[tuple[Property, Value]]:
    """Return the properties that a filter compares, each with the value that it must have."""
    given = [
        (Property(True, name.lower()), getattr(source, field))
        for name, field in CORRELATION_FIELDS.items()
    ]
    given += [(Property(False, name.lower()), plain(value)) for name, value in source.properties]
    return [(of, value) for of, value in given if value is not None]


def holds(value: Value, expected: Value) -> bool:
    """Return whether a message's value is the one that a filter expects."""
    if value is None or kind_of(value) is not kind_of(expected):
        return False
    try:
        return equal(value, expected)
    except FilterException:
        return False  # a double that is beyond a decimal
