"""Messages' values as the values of filters (`bridge.model.filters.values`), and back."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from bridge.wire.amqp10.decimals import decode_decimal, encode_decimal
from bridge.wire.amqp10.scalars import Decimal32, Decimal64, Decimal128, Timestamp
from bridge.wire.amqp10.types import Described, Symbol
from bridge.wire.amqp10.writing import encode
from bridge.wire.basic import FieldValue, decimal_double, long, shown_text, text
from bridge.wire.mapping.fields import AMQP_ENCODED

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)
_FIRST, _LAST = _YEAR_1, datetime.max.replace(tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)
_TICKS_A_MICROSECOND = 10

TIMESPAN = "com.microsoft:timespan"
DATETIME_OFFSET = "com.microsoft:datetime-offset"
URI = "com.microsoft:uri"
"""Descriptors of .NET's own types: ticks of 100 ns (from the year 1 for a time), and text."""


def time_of(time_ms: int) -> datetime:
    """Return UTC milliseconds as a time; the result stays within the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return _LAST if time_ms > 0 else _FIRST


def span_of(span_ms: int) -> timedelta:
    """Return milliseconds as a span; Python's largest span stands for any longer one."""
    try:
        return timedelta(milliseconds=span_ms)
    except OverflowError:
        return timedelta.max


def milliseconds_of(span: timedelta) -> int:
    """Return a span in whole milliseconds, rounded down."""
    return span // _MILLISECOND


def from_field(field: FieldValue | None) -> object:
    """Return a header's value; text that is not UTF-8 is binary, as SDKs see it."""
    if field is None:
        return None
    letter, value = field
    if letter == "S":
        assert isinstance(value, bytes)
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if letter == "T":
        assert isinstance(value, int)
        return time_of(value * 1000)
    if letter == "D":
        return decimal_double(field)
    return value


def from_amqp(value: object) -> object:
    """Return a decoded AMQP 1.0 value as a plain one; a type without operators is unchanged."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Decimal32 | Decimal64 | Decimal128):
        found = decode_decimal(encode(value))
        return value if found is None else found
    if isinstance(value, Timestamp):
        return time_of(int(value))
    if isinstance(value, Described):
        return _from_described(value)
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)
    return value


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, UUID})


def _from_described(value: Described) -> object:
    """Return the value of one of .NET's described types; any other is returned unchanged."""
    descriptor, inner = str(value.descriptor), value.value
    try:
        if descriptor == TIMESPAN and isinstance(inner, int):
            return timedelta(microseconds=inner // _TICKS_A_MICROSECOND)
        if descriptor == DATETIME_OFFSET and isinstance(inner, int):
            return _YEAR_1 + timedelta(microseconds=inner // _TICKS_A_MICROSECOND)
    except OverflowError:
        return value
    return str(inner) if descriptor == URI and isinstance(inner, str) else value


def as_text(value: object) -> str | None:
    """Return the text of an id of any type, as .NET shows it."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return shown_text(value)
    return str(value)


_WHOLE = {"b": 8, "s": 16, "I": 32, "l": 64}
_NATURAL = {"B": 8, "u": 16, "i": 32}


def to_field(value: object, before: FieldValue | None = None) -> FieldValue:
    """Return a value as a header: a 0-9-1 field, or encoded AMQP 1.0 (`fields.AMQP_ENCODED`).

    A number keeps the type of the field `before`, which it replaces, if it fits that type;
    otherwise it becomes a long or a double.
    """
    if value is None or isinstance(value, bool):
        return ("V", None) if value is None else ("t", value)
    letter = "" if before is None else before[0]
    if isinstance(value, int):
        return (letter, value) if _fits(value, letter) else long(value)
    if isinstance(value, float):
        return ("f" if letter == "f" and _is_single(value) else "d"), value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return "x", value
    if isinstance(value, Decimal):
        return AMQP_ENCODED, encode_decimal(value)
    if isinstance(value, datetime):
        value = Timestamp((value - _EPOCH) // _MILLISECOND)
    elif isinstance(value, timedelta):
        value = Described(Symbol(TIMESPAN), value // _MICROSECOND * _TICKS_A_MICROSECOND)
    return AMQP_ENCODED, encode(value)


def _fits(value: int, letter: str) -> bool:
    if letter in _WHOLE:
        limit = 1 << (_WHOLE[letter] - 1)
        return -limit <= value < limit
    return letter in _NATURAL and 0 <= value < 1 << _NATURAL[letter]


def _is_single(value: float) -> bool:
    try:
        return bool(struct.unpack(">f", struct.pack(">f", value))[0] == value)
    except OverflowError:
        return False
