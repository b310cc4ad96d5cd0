"""Decimals on the wire (part 1, sections 1.6.13 to 1.6.15), as every client can read them.

They are IEEE 754's with a binary integer as coefficient. .NET's client up to Microsoft.Azure.Amqp
2.7.3 writes a decimal128 of its own:

    sign u1 | (6176 - scale) >> 9 u7 | (6176 - scale) << 1 u8 | 0 u16 | coefficient u96

The bits that it loses of the exponent are 0. In IEEE's form the same bytes are numbers around
10^-4600, which fit nowhere. The Python SDK reads this form alone.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from bridge.model.decimals import COEFFICIENT_MAX, SCALE_MAX, fit, made, text_of
from bridge.wire.amqp10.errors import EncodeError
from bridge.wire.amqp10.primitives import encode_string

CODES: Final = b"\x74\x84\x94"
"""Constructors of decimals."""

_FORMS: Final[dict[int, tuple[int, int, int, int]]] = {
    0x74: (32, 8, 101, 7),
    0x84: (64, 10, 398, 16),
    0x94: (128, 14, 6176, 34),
}
"""Constructor -> bits, bits of the exponent, its bias, digits (IEEE 754-2008, table 3.6)."""

_BIAS: Final = 6176
_NAN: Final = Decimal("NaN")
_INFINITIES: Final = (Decimal("Infinity"), Decimal("-Infinity"))
_WORD: Final = 10**8


def decode_any(raw: bytes) -> Decimal:
    """Return the number of an encoded decimal of any width and form, which may be NaN or infinity.

    Args:
        raw: the whole value, with its constructor; not checked.
    """
    if raw[0] == 0x94 and raw[1] & 0x7F == _BIAS >> 9 and _is_old(raw):
        scale = _BIAS - ((raw[1] & 0x7F) << 9 | raw[2] >> 1)
        return made(raw[1] >> 7, int.from_bytes(raw[5:], "big"), -scale)
    bits, exponent_bits, bias, digits = _FORMS[raw[0]]
    value = int.from_bytes(raw[1:], "big")
    sign = value >> (bits - 1)
    place = bits - 1 - exponent_bits
    leading = 0
    if (value >> (bits - 3)) & 3 == 3:
        if (value >> (bits - 5)) & 15 == 15:
            return _NAN if (value >> (bits - 6)) & 1 else _INFINITIES[sign]
        place -= 2
        leading = 4 << place
    exponent = (value >> place) & ((1 << exponent_bits) - 1)
    coefficient = leading | (value & ((1 << place) - 1))
    if coefficient >= 10**digits:
        return _NAN  # IEEE reads it as 0, which no sender has meant
    return made(sign, coefficient, exponent - bias)


def _is_old(raw: bytes) -> bool:
    """Whether the bytes behind the first are those of .NET's older form."""
    low = raw[2]
    return (
        not low & 1
        and (_BIAS - SCALE_MAX) & 0x7F <= low >> 1 <= _BIAS & 0x7F
        and not raw[3]
        and not raw[4]
    )


def decode_decimal(raw: bytes) -> Decimal | None:
    """Return the number of an encoded decimal; `None` if .NET's decimal cannot hold it."""
    return fit(decode_any(raw))


def _parts(value: Decimal) -> tuple[int, int, int]:
    """Return sign (1 for negative), coefficient and scale of a number that fits."""
    fitting = fit(value)
    if fitting is None:
        raise EncodeError(f"{value} is no decimal of 96 bits with a scale of 0 to {SCALE_MAX}")
    sign, digits, exponent = fitting.as_tuple()
    assert isinstance(exponent, int)
    return sign, int("".join(map(str, digits))), -exponent


def encode_decimal(value: Decimal) -> bytes:
    """Encode a decimal as IEEE's decimal128.

    Raises:
        EncodeError: .NET's decimal cannot hold it.
    """
    sign, coefficient, scale = _parts(value)
    number = sign << 127 | (_BIAS - scale) << 113 | coefficient
    return b"\x94" + number.to_bytes(16, "big")


def encode_for_python(value: Decimal) -> bytes:
    """Encode a decimal so that the Python SDK (7.14 and newer) reads this very number.

    It knows .NET's older form alone, and takes the coefficient for three groups of eight decimal
    digits, of which the first may have more. A coefficient that it would misread is written in such
    groups; one of 27 digits and more, which it cannot read, becomes text.

    Raises:
        EncodeError: .NET's decimal cannot hold it.
    """
    sign, coefficient, scale = _parts(value)
    if coefficient >> 32:
        upper, low = divmod(coefficient, _WORD)
        high, middle = divmod(upper, _WORD)
        if high >> 32:
            return encode_string(text_of(value).encode())
        coefficient = high << 64 | middle << 32 | low
    assert coefficient <= COEFFICIENT_MAX
    exponent = _BIAS - scale
    head = bytes((0x94, sign << 7 | exponent >> 9, exponent << 1 & 0xFE, 0, 0))
    return head + coefficient.to_bytes(12, "big")
