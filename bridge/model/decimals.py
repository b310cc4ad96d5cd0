"""Decimals: the numbers that .NET's decimal holds, which are those of Service Bus.

A decimal is a whole number of 96 bits and a sign, with a scale of 0 to 28 (C# specification, the
decimal type). .NET's client stops receiving at a message with any other one.
"""

from __future__ import annotations

from decimal import ROUND_05UP, ROUND_HALF_EVEN, Context, Decimal
from typing import Final

COEFFICIENT_MAX: Final = 2**96 - 1
SCALE_MAX: Final = 28

_DIGITS_MAX = 64
"""More digits than any decimal of AMQP 1.0 has (34)."""

EXACT: Final = Context(prec=100, rounding=ROUND_05UP)
"""Sums and products of decimals are exact in it; quotients can be rounded once more."""

_NEAREST = Context(prec=200, rounding=ROUND_HALF_EVEN)
_LIMIT = Decimal(COEFFICIENT_MAX + 1)


def fit(value: Decimal) -> Decimal | None:
    """Return the same number in 96 bits with a scale of 0 to 28; `None` if there is none."""
    sign, digits, power = value.as_tuple()
    if not isinstance(power, int) or len(digits) > _DIGITS_MAX:
        return None
    coefficient, exponent = int("".join(map(str, digits))), int(power)
    if not coefficient:
        exponent = max(min(exponent, 0), -SCALE_MAX)
    if exponent > SCALE_MAX:
        return None
    if exponent > 0:
        coefficient, exponent = coefficient * 10**exponent, 0
    while coefficient > COEFFICIENT_MAX or exponent < -SCALE_MAX:
        coefficient, rest = divmod(coefficient, 10)
        if rest or not exponent:
            return None
        exponent += 1
    return made(sign, coefficient, exponent)


def made(sign: int, coefficient: int, exponent: int) -> Decimal:
    """Return a decimal of its parts, exactly; a `sign` of 1 is negative."""
    return Decimal(f"{'-' if sign else ''}{coefficient}E{exponent}")


def rounded(value: Decimal) -> Decimal:
    """Return the nearest number that fits, of two the even one, with as many places as fit.

    Raises:
        OverflowError: the value is none, or is beyond 96 bits.
    """
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or value.copy_abs() >= _LIMIT:
        raise OverflowError("a number is beyond a decimal")
    for places in range(min(SCALE_MAX, max(0, -exponent)), -1, -1):
        unit = Decimal(f"1E-{places}")
        found = value.quantize(unit, context=_NEAREST)
        if found.copy_abs() < _NEAREST.multiply(_LIMIT, unit):
            return found
    raise OverflowError("a number is beyond a decimal")


def of_double(value: float) -> Decimal:
    """Return a double as a decimal: its first 15 digits, as .NET converts it.

    Raises:
        OverflowError: the double is no number, or beyond 96 bits.
    """
    return rounded(Decimal(f"{value:.15g}"))


def text_of(value: Decimal) -> str:
    """Return a decimal's text with all its places and no exponent."""
    return f"{value:f}"
