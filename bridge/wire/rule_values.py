"""Values of rules in `$management`: AMQP 1.0's types, as a client gave them, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from bridge.model.rule_values import (
    DATE_TIME_OFFSET,
    TICKS_A_MICROSECOND,
    Moment,
    Single,
    Span,
    Text,
    Whole,
    ticks_of,
    without_type,
)
from bridge.model.rules import is_int
from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.scalars import (
    Byte,
    Char,
    Decimal128,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from bridge.wire.amqp10.types import Described
from bridge.wire.filter_values import DATETIME_OFFSET, TIMESPAN, URI, from_amqp

_YEAR_1: Final = datetime(1, 1, 1, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_WHOLE: Final[dict[str, Any]] = {
    "byte": Byte,
    "ubyte": Ubyte,
    "short": Short,
    "ushort": Ushort,
    "uint": Uint,
    "long": Long,
    "ulong": Ulong,
}
_WHOLE_KINDS: Final = {made: kind for kind, made in _WHOLE.items()}
_TEXTS: Final[dict[str, Any]] = {"char": Char, "symbol": Symbol}
_TEXT_KINDS: Final = {made: kind for kind, made in _TEXTS.items()}


def rule_value(value: object) -> object:
    """Return a decoded AMQP 1.0 value as a rule holds it, with its type.

    A type without operators is unchanged: no filter takes it.
    """
    if isinstance(value, Described) and isinstance(value.value, int):
        descriptor = str(value.descriptor)
        if descriptor in (TIMESPAN, DATETIME_OFFSET):
            return _of_ticks(value, descriptor == DATETIME_OFFSET, value.value)
    plain = from_amqp(value)
    if isinstance(plain, str) and isinstance(value, Described):
        return Text(plain, "uri")
    kind = _WHOLE_KINDS.get(type(value))
    # No conditional expression of `int` and a subclass: the compiler would make both an int.
    if kind is not None and isinstance(plain, int):
        if kind == "long" and not is_int(plain):
            return plain
        return Whole(plain, kind)
    if isinstance(value, Float):
        return Single(value)
    kind = _TEXT_KINDS.get(type(value))
    return plain if kind is None else Text(str(plain), kind)


def _of_ticks(value: Described, is_time: bool, ticks: int) -> object:
    try:
        if not is_time:
            return Span.of_ticks(ticks)
        microseconds, tick = divmod(ticks, TICKS_A_MICROSECOND)
        moment = _YEAR_1 + timedelta(microseconds=microseconds)
    except OverflowError:
        return value
    return Moment.of(moment, tick, DATE_TIME_OFFSET)


def amqp_value(value: object) -> object:
    """Return a rule's value with its type in AMQP 1.0; a DateTime in whole milliseconds."""
    if isinstance(value, Whole):
        return _WHOLE[value.kind](int(value))
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if is_int(value):
            return Int(value)
        return value
    if isinstance(value, Single):
        return Float(value)
    if isinstance(value, Text):
        text = str(without_type(value))
        made = _TEXTS.get(value.kind)
        return Described(Symbol(URI), text) if made is None else made(text)
    if isinstance(value, Decimal):
        return Decimal128(encode_decimal(value)[1:])
    if isinstance(value, timedelta):
        return Described(Symbol(TIMESPAN), ticks_of(value))
    if isinstance(value, datetime):
        return _of_time(value)
    return value


def _of_time(value: datetime) -> object:
    zoned = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, Moment) and value.kind == DATE_TIME_OFFSET:
        microseconds = (zoned - _YEAR_1) // timedelta(microseconds=1)
        return Described(Symbol(DATETIME_OFFSET), microseconds * TICKS_A_MICROSECOND + value.tick)
    return Timestamp((zoned - _EPOCH) // timedelta(milliseconds=1))
