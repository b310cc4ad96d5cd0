"""SET's implicit conversion of a value to the property's present type (as .NET converts).

A fraction becomes the nearest whole number, of two the even one; a double becomes the decimal of
its first 15 digits; a text is parsed as the wanted type;
a boolean is 1 or 0; every value becomes text. A value without such a conversion fails the action.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from uuid import UUID

from bridge.model.decimals import of_double, rounded, text_of
from bridge.model.duration import MAX_MS, format_duration, parse_duration_ms
from bridge.model.filters.errors import FilterException
from bridge.model.filters.lexer import INT64_MAX
from bridge.model.filters.values import Value, kind_of


def convert(value: Value, wanted: type) -> Value:
    """Return a value converted to class `wanted` (a class of `values`); `None` stays.

    Raises:
        FilterException: the value cannot be converted.
    """
    if value is None or type(value) is wanted:
        return value
    try:
        return _CONVERSIONS[wanted](value)
    except (KeyError, ValueError, TypeError, OverflowError, InvalidOperation):
        raise FilterException(
            f"SET cannot make a {kind_of(value).value} a {wanted.__name__}."
        ) from None


def _to_whole(value: Value) -> int:
    if isinstance(value, str):
        return _in_range(int(_plain(value)))
    if isinstance(value, bool | int | float | Decimal):
        return _in_range(round(value))
    raise TypeError


def _in_range(value: int) -> int:
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise OverflowError
    return value


def _to_double(value: Value) -> float:
    if isinstance(value, str):
        found = float(_plain(value))
        if not math.isfinite(found):
            raise OverflowError
        return found
    if isinstance(value, bool | int | Decimal):
        return float(value)
    raise TypeError


def _to_decimal(value: Value) -> Decimal:
    if isinstance(value, str):
        return rounded(Decimal(_plain(value)))
    if isinstance(value, float):
        return of_double(value)
    if isinstance(value, bool | int):
        return Decimal(int(value))
    raise TypeError


def _plain(text: str) -> str:
    """Return a number's text; Python would also read 1_000 and digits of other scripts."""
    if "_" in text or not text.isascii():
        raise ValueError
    return text


def _to_boolean(value: Value) -> bool:
    if isinstance(value, str):
        return {"true": True, "false": False}[value.strip().lower()]
    if isinstance(value, int | float | Decimal):
        return value != 0
    raise TypeError


def _to_text(value: Value) -> str:
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, int | float | UUID):
        return str(value)
    if isinstance(value, Decimal):
        return text_of(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta) and value >= timedelta(0):
        return format_duration(min(value // timedelta(milliseconds=1), MAX_MS))
    raise TypeError


def _to_guid(value: Value) -> UUID:
    if not isinstance(value, str):
        raise TypeError
    return UUID(value)


def _to_time(value: Value) -> datetime:
    if not isinstance(value, str):
        raise TypeError
    found = datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _to_span(value: Value) -> timedelta:
    if not isinstance(value, str):
        raise TypeError
    return timedelta(milliseconds=parse_duration_ms(value))


_CONVERSIONS: dict[type, Callable[[Value], Value]] = {
    int: _to_whole,
    float: _to_double,
    Decimal: _to_decimal,
    bool: _to_boolean,
    str: _to_text,
    UUID: _to_guid,
    datetime: _to_time,
    timedelta: _to_span,
}
