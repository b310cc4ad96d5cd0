"""Decimals on the wire: IEEE's three widths, .NET's older form, and what the Python SDK reads."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from azure.servicebus._pyamqp._decode import _decode_decimal128
from azure.servicebus._pyamqp._encode import encode_decimal128
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.model.decimals import COEFFICIENT_MAX, SCALE_MAX, fit, made, of_double, rounded
from bridge.wire.amqp10.decimals import (
    decode_any,
    decode_decimal,
    encode_decimal,
    encode_for_python,
)
from bridge.wire.amqp10.errors import EncodeError

signs = st.integers(0, 1)
scales = st.integers(0, SCALE_MAX)
coefficients = st.integers(0, 96).flatmap(lambda bits: st.integers(0, 2**bits - 1))
decimals = st.builds(lambda s, c, e: made(s, c, -e), signs, coefficients, scales)

PYTHON_COEFFICIENT_MAX = 4_294_967_295_99999999_99999999
"""The Python SDK reads three groups of digits, the first up to 2^32 - 1."""


def parts(value: Decimal | None) -> object:
    """Sign, digits and exponent: 1.50 is not 1.5."""
    return None if value is None else value.as_tuple()


def ieee(sign: int, coefficient: int, exponent: int) -> bytes:
    """A decimal128 after IEEE 754-2008, 3.5.2, with a binary coefficient below 2^113."""
    return b"\x94" + (sign << 127 | (exponent + 6176) << 113 | coefficient).to_bytes(16, "big")


def old(sign: int, coefficient: int, scale: int) -> bytes:
    """What Microsoft.Azure.Amqp up to 2.7.3 writes: the exponent in the wrong bits."""
    exponent = 6176 - scale
    head = bytes((0x94, sign << 7 | exponent >> 9, (exponent & 0x7F) << 1, 0, 0))
    return head + coefficient.to_bytes(12, "big")


@given(signs, coefficients, scales)
def test_both_forms_are_read_and_ieee_s_is_written(sign: int, coefficient: int, scale: int) -> None:
    """To the last digit, with sign and scale, also of zeros."""
    value = made(sign, coefficient, -scale)
    assert parts(decode_decimal(ieee(sign, coefficient, -scale))) == parts(value)
    assert parts(decode_decimal(old(sign, coefficient, scale))) == parts(value)
    assert encode_decimal(value) == ieee(sign, coefficient, -scale)


@given(decimals)
@example(Decimal("12345678.90"))
@example(Decimal("42949672.96"))
@example(Decimal(PYTHON_COEFFICIENT_MAX))
@example(Decimal(PYTHON_COEFFICIENT_MAX + 1))
def test_the_python_sdk_reads_what_is_written_for_it(value: Decimal) -> None:
    """Its own decoder is asked; what it could not read is text with the same digits."""
    raw = encode_for_python(value)
    if raw[0] == 0x94:
        assert parts(_decode_decimal128(memoryview(raw[1:]))[1]) == parts(value)
    else:
        assert int("".join(map(str, value.as_tuple().digits))) > PYTHON_COEFFICIENT_MAX
        assert parts(Decimal(raw[2:].decode())) == parts(value)


def test_coefficients_of_32_bits_have_the_older_form_of_dotnet_for_python() -> None:
    """Above, the Python SDK misreads that form: 42949672.96 as 1000000.00."""
    assert encode_for_python(Decimal("-42949672.95")) == old(1, 4_294_967_295, 2)
    assert _decode_decimal128(memoryview(old(0, 4_294_967_296, 2)[1:]))[1] == Decimal("1000000.00")


@given(decimals)
def test_what_the_python_sdk_writes_is_read(value: Decimal) -> None:
    """Its own encoder is asked."""
    written = bytearray()
    encode_decimal128(written, value)
    assert parts(decode_decimal(bytes(written))) == parts(value)


@given(signs, st.integers(0, 9_999_999), st.integers(-101, 90))
def test_a_decimal32_is_the_number_that_it_says(sign: int, coefficient: int, exponent: int) -> None:
    """With both places of the exponent: a coefficient from 2^23 on moves it."""
    if coefficient < 2**23:
        bits = sign << 31 | (exponent + 101) << 23 | coefficient
    else:
        bits = sign << 31 | 3 << 29 | (exponent + 101) << 21 | (coefficient - 2**23)
    found = decode_any(b"\x74" + bits.to_bytes(4, "big"))
    assert parts(found) == parts(made(sign, coefficient, exponent))


@given(signs, st.integers(0, 10**16 - 1), st.integers(-398, 369))
def test_a_decimal64_is_the_number_that_it_says(sign: int, coefficient: int, exponent: int) -> None:
    """With both places of the exponent: a coefficient from 2^53 on moves it."""
    if coefficient < 2**53:
        bits = sign << 63 | (exponent + 398) << 53 | coefficient
    else:
        bits = sign << 63 | 3 << 61 | (exponent + 398) << 51 | (coefficient - 2**53)
    found = decode_any(b"\x84" + bits.to_bytes(8, "big"))
    assert parts(found) == parts(made(sign, coefficient, exponent))


@given(st.sampled_from([(0x74, 4), (0x84, 8), (0x94, 16)]), st.binary(min_size=16, max_size=16))
def test_any_bytes_are_a_number_that_fits_or_none(form: tuple[int, int], raw: bytes) -> None:
    """A number that fits is the same when it is written again."""
    value = bytes((form[0],)) + raw[: form[1]]
    fitting = decode_decimal(value)
    if fitting is not None:
        assert fitting == decode_any(value)
        assert parts(decode_decimal(encode_decimal(fitting))) == parts(fitting)


@pytest.mark.parametrize(
    "raw",
    [
        ieee(0, COEFFICIENT_MAX + 1, 0),
        ieee(0, 1, -29),
        ieee(0, 8, 28),
        ieee(0, 10**34, -10),
        b"\x94\x7c" + bytes(15),
        b"\x94\x78" + bytes(15),
        b"\x94\xf8" + bytes(15),
        b"\x84\x7c" + bytes(7),
        b"\x74\x78" + bytes(3),
        b"\x74\x6c\xb8\x96\x80",
    ],
)
def test_what_dotnet_cannot_hold_is_no_value(raw: bytes) -> None:
    """Too large, too many places, infinity, NaN, digits beyond the width's."""
    assert decode_decimal(raw) is None


def test_the_same_number_with_fewer_zeros_fits() -> None:
    """Only the value counts: zeros at the end go, where they are too many, and come where due."""
    assert parts(decode_decimal(ieee(0, 15 * 10**31, -32))) == parts(made(0, 15 * 10**27, -28))
    assert parts(decode_decimal(ieee(1, 5, 3))) == parts(Decimal("-5000"))
    assert parts(decode_decimal(ieee(0, 0, -4_000))) == parts(made(0, 0, -28))


@pytest.mark.parametrize("value", ["NaN", "sNaN", "-Infinity", "1E+40", "1E-29"])
def test_what_does_not_fit_is_not_written(value: str) -> None:
    """By neither writer."""
    for write in (encode_decimal, encode_for_python):
        with pytest.raises(EncodeError, match="is no decimal of 96 bits"):
            write(Decimal(value))


@given(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**40), max_value=10**40),
)
def test_rounding_is_to_the_nearest_number_that_fits(value: Decimal) -> None:
    """Half-way cases round to even; a number that fits is unchanged."""
    try:
        found = rounded(value)
    except OverflowError:
        assert value.copy_abs() > COEFFICIENT_MAX
        return
    assert parts(fit(found)) == parts(found)
    step = Decimal(f"1E{found.as_tuple().exponent}")
    with localcontext() as context:
        context.prec = 200
        assert abs(found - value) * 2 <= step
    if fit(value) is not None:
        assert found == value


def test_a_double_is_its_first_15_digits() -> None:
    """As .NET converts it; beyond 96 bits it does not."""
    assert of_double(0.1 + 0.2) == Decimal("0.3")
    assert of_double(1e-29) == 0
    assert of_double(2.5e20) == Decimal("250000000000000000000")
    for beyond in (8e28, float("inf"), float("nan")):
        with pytest.raises(OverflowError):
            of_double(beyond)
