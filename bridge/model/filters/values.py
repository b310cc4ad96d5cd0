"""Values that properties, constants and parameters have, and of which kind each is.

Whole numbers of every AMQP width are `int`, `float` and `double` are `float`; a timestamp is an
aware `datetime`, `com.microsoft:timespan` a `timedelta` (both to the microsecond). `None` is both
null and unknown. Anything else that AMQP can say (lists, maps, decimals) is there and compares
with nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from uuid import UUID


class Kind(Enum):
    """What a value may be compared with: its own kind only."""

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
    """Return a value; of a time that was given without a zone, that time in UTC."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def index_key(value: Value) -> object:
    """Return what is equal for equal values of one kind: long and double meet as doubles."""
    return float(value) if type(value) is int else value
