"""Values of properties, constants and parameters, and the kind of each.

Whole numbers of every AMQP width are `int`, `float` and `double` are `float`, a decimal is a
`Decimal` that fits .NET's; a timestamp is an aware `datetime`, `com.microsoft:timespan` a
`timedelta` (both to the microsecond). `None` is both null and unknown. All other AMQP values
(lists, maps) are present and compare with nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

from bridge.model.decimals import of_double


class ValueKind(Enum):
    """The kind of a value: values of one kind only are compared."""

    NUMBER = "number"
    TEXT = "string"
    BOOLEAN = "boolean"
    BINARY = "binary"
    GUID = "Guid"
    TIME = "DateTime"
    SPAN = "TimeSpan"
    OTHER = "value without operators"


_KINDS: dict[type, ValueKind] = {
    int: ValueKind.NUMBER,
    float: ValueKind.NUMBER,
    Decimal: ValueKind.NUMBER,
    str: ValueKind.TEXT,
    bool: ValueKind.BOOLEAN,
    bytes: ValueKind.BINARY,
    UUID: ValueKind.GUID,
    datetime: ValueKind.TIME,
    timedelta: ValueKind.SPAN,
}

Value = object
"""A value of one of the classes above, or `None`."""


def kind_of(value: Value) -> ValueKind:
    """Return the kind of a value that is not `None`."""
    return _KINDS.get(type(value), ValueKind.OTHER)


_FEW_DIGITS = 10**15
"""Whole numbers below it are doubles and decimals of the same value."""

_PLAIN_MIN, _PLAIN_MAX = 1e-13, 7e28
"""Doubles whose first 15 digits fit a decimal's places."""

_NUMBERS = frozenset({int, float, Decimal})


def index_key(value: Value) -> object:
    """Return a key, equal for values of one kind that are equal as any two types compare them.

    Numbers are compared exactly, as doubles, or as decimals of the first 15 digits of a double: the
    key is the double of these digits.
    """
    if type(value) not in _NUMBERS:
        return value
    number = float(value)  # type: ignore[arg-type]
    size = abs(number)
    if size < _FEW_DIGITS and number.is_integer():
        return number
    if _PLAIN_MIN <= size < _PLAIN_MAX:
        return float(f"{number:.15g}")
    try:
        return float(of_double(number))
    except OverflowError:
        return number


def compares_with_all(value: Value) -> bool:
    """Whether a value compares with every value of its kind: a decimal not with every double."""
    if not isinstance(value, float):
        return not isinstance(value, Decimal)
    try:
        of_double(value)
    except OverflowError:
        return False
    return True
