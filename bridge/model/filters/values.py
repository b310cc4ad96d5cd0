"""Values of properties, constants and parameters, and the kind of each.

Whole numbers of every AMQP width are `int`, `float` and `double` are `float`; a timestamp is an
aware `datetime`, `com.microsoft:timespan` a `timedelta` (both to the microsecond). `None` is both
null and unknown. All other AMQP values (lists, maps, decimals) are present and compare with
nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from uuid import UUID


class Kind(Enum):
    """The kind of a value: values of one kind only are compared."""

    NUMBER = "number"
    TEXT = "string"
    BOOLEAN = "boolean"
    BINARY = "binary"
    GUID = "Guid"
    TIME = "DateTime"
    SPAN = "TimeSpan"
    OTHER = "value without operators"


_KINDS: dict[type, Kind] = {
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    str: Kind.TEXT,
    bool: Kind.BOOLEAN,
    bytes: Kind.BINARY,
    UUID: Kind.GUID,
    datetime: Kind.TIME,
    timedelta: Kind.SPAN,
}

Value = object
"""A value of one of the classes above, or `None`."""


def kind_of(value: Value) -> Kind:
    """Return the kind of a value that is not `None`."""
    return _KINDS.get(type(value), Kind.OTHER)


def with_zone(value: Value) -> Value:
    """Return a value; a time without a zone becomes that time in UTC."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def index_key(value: Value) -> object:
    """Return a key, equal for equal values of one kind: long and double as doubles."""
    return float(value) if type(value) is int else value
