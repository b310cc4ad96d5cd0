"""Comparisons and arithmetic of two values, by C#'s rules (Azure, SQL filter syntax).

Values of one kind are compared: whole numbers exactly, a whole number and a double as doubles, a
decimal and any number as decimals. For values of two kinds C# has no operator, so the filter fails.
Texts compare by code point, case counts. Whole numbers are Int64 and do not wrap; a division
truncates towards zero.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from bridge.model.decimals import EXACT, of_double, rounded
from bridge.model.filters.errors import FilterException
from bridge.model.filters.lexer import INT64_MAX
from bridge.model.filters.like import TEXT_LENGTH_MAX
from bridge.model.filters.values import Value, kind_of

Compare = Callable[[Value, Value], bool]
Compute = Callable[[Value, Value], Value]

_TESTS: dict[str, Callable[..., bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBERS = frozenset({int, float, Decimal})
_ORDERED = frozenset({int, float, Decimal, str, datetime, timedelta})
_EQUATED = _ORDERED | {bool, bytes, UUID}


def unlike(name: str, left: Value, right: Value) -> FilterException:
    """Return the error of an operator for two kinds of values without that operator."""
    kinds = f"a {kind_of(left).value} and a {kind_of(right).value}"
    return FilterException(f"The operator {name} does not take {kinds}.")


def comparison(name: str) -> Compare:
    """Return a comparison of two values that are not null."""
    test = _TESTS[name]
    allowed = _EQUATED if name in ("=", "<>") else _ORDERED

    def compare(left: Value, right: Value) -> bool:
        kind = type(left)
        if kind is type(right):
            if kind in allowed:
                return test(left, right)
        elif kind in _NUMBERS and type(right) in _NUMBERS:
            if kind is Decimal or type(right) is Decimal:
                return test(_decimal(left), _decimal(right))
            return test(float(left), float(right))  # type: ignore[arg-type]
        raise unlike(name, left, right)

    return compare


def _decimal(value: Value) -> Decimal:
    """Return a number as a decimal, as .NET converts it."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int):
        return Decimal(value)
    assert isinstance(value, float)
    try:
        return of_double(value)
    except OverflowError:
        raise FilterException(f"The double {value!r} is beyond a Decimal.") from None


def operator_of(name: str, kind: type) -> Compare:
    """Return a comparison of two values of this class."""
    ordered = _EQUATED if name in ("=", "<>") else _ORDERED
    return _TESTS[name] if kind in ordered else comparison(name)


equal = comparison("=")


def _whole(value: int) -> int:
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise FilterException("A whole number is beyond an Int64.")
    return value


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise FilterException("A whole number is divided by zero.")
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


def _remainder(left: int, right: int) -> int:
    return left - right * _quotient(left, right)


def _divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _modulo(left: float, right: float) -> float:
    if math.isinf(left) or math.isnan(left) or math.isnan(right) or right == 0:
        return math.nan
    return math.fmod(left, right)


_ON_WHOLE: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
}
_ON_DOUBLES: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _modulo,
}
_ON_DECIMALS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "/": EXACT.divide,
    "%": EXACT.remainder,
}
_ON_TIMES: dict[tuple[str, type, type], Callable[..., Value]] = {
    ("-", datetime, datetime): operator.sub,
    ("+", datetime, timedelta): operator.add,
    ("-", datetime, timedelta): operator.sub,
    ("+", timedelta, timedelta): operator.add,
    ("-", timedelta, timedelta): operator.sub,
}


def arithmetic(name: str) -> Compute:
    """Return an operator's function of two values that are not null."""
    on_whole, on_doubles = _ON_WHOLE[name], _ON_DOUBLES[name]

    def compute(left: Value, right: Value) -> Value:
        if type(left) is int and type(right) is int:
            return _whole(on_whole(left, right))
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            if type(left) is Decimal or type(right) is Decimal:
                return _of_decimals(name, _decimal(left), _decimal(right))
            return on_doubles(float(left), float(right))  # type: ignore[arg-type]
        if name == "+" and isinstance(left, str) and isinstance(right, str):
            return _joined(left, right)
        on_times = _ON_TIMES.get((name, type(left), type(right)))
        if on_times is None:
            raise unlike(name, left, right)
        return _in_range(on_times, left, right)

    return compute


def _of_decimals(name: str, left: Decimal, right: Decimal) -> Decimal:
    if name in "/%" and not right:
        raise FilterException("A decimal is divided by zero.")
    try:
        return rounded(_ON_DECIMALS[name](left, right))
    except OverflowError:
        raise FilterException("A number is beyond a Decimal.") from None


def _joined(left: str, right: str) -> str:
    if len(left) + len(right) > TEXT_LENGTH_MAX:
        raise FilterException(f"A string has at most {TEXT_LENGTH_MAX} characters.")
    return left + right


def _in_range(on_times: Callable[..., Value], *values: Value) -> Value:
    try:
        return on_times(*values)
    except OverflowError:
        raise FilterException("A time is beyond its range.") from None


def signed(name: str, value: Value) -> Value:
    """Return `+value` or `-value`."""
    if type(value) is int:
        return _whole(-value) if name == "-" else value
    if type(value) is float:
        return -value if name == "-" else value
    if isinstance(value, Decimal):
        return value.copy_negate() if name == "-" else value
    if isinstance(value, timedelta):
        return _in_range(operator.neg, value) if name == "-" else value
    raise FilterException(f"The sign {name} does not take a {kind_of(value).value}.")
