"""AMQP 1.0 values: every type there and back."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.amqp10.errors import DecodeError, EncodeError
from bridge.wire.amqp10.types import (
    CONSTRUCTORS,
    Array,
    Byte,
    Char,
    Symbol,
    Ubyte,
    Uint,
    decode,
)
from bridge.wire.amqp10.writing import encode
from tests.unit.wire.amqp10.values import EXAMPLES, VALUES


def is_same(left: Any, right: Any) -> bool:
    """Whether two values are equal and of the same wire type, all the way down."""
    return encode(left) == encode(right)


@given(VALUES)
def test_round_trip(value: Any) -> None:
    """Reading a written value gives the same value and type, to the last byte."""
    raw = encode(value)

    found, end = decode(raw)

    assert end == len(raw)
    assert found == value
    assert is_same(found, value)


@pytest.mark.parametrize("name", EXAMPLES)
def test_edges_of_each_type(name: str) -> None:
    """The smallest, the largest and the empty value of each type come back."""
    for value in EXAMPLES[name]:
        assert decode(encode(value))[0] == value


def test_every_type_has_an_example() -> None:
    """The examples leave out no type of the table."""
    assert set(EXAMPLES) == {row.type for row in CONSTRUCTORS.values()} | {"described"}


@given(VALUES, st.data())
def test_cut_short(value: Any, data: st.DataObject) -> None:
    """A value that ends too early is a decode error and nothing else."""
    raw = encode(value)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]

    with pytest.raises(DecodeError):
        decode(cut)


@given(st.binary(max_size=64))
def test_any_bytes(raw: bytes) -> None:
    """Any bytes are a value or a decode error."""
    try:
        _, end = decode(raw)
    except DecodeError:
        return

    assert end <= len(raw)


@pytest.mark.parametrize("code", [code for code in range(1, 256) if code not in CONSTRUCTORS])
def test_unknown_constructors(code: int) -> None:
    """An octet that begins no value is refused."""
    with pytest.raises(DecodeError, match=r"no AMQP 1\.0 constructor"):
        decode(bytes((code,)) + bytes(40))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40", id="four billion nulls"),
        pytest.param(b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40", id="four billion items"),
        pytest.param(b"\xc1\x02\x01\x40", id="a key without a value"),
        pytest.param(b"\xc1\x05\x02\xc0\x01\x00\x40", id="a list as a key"),
        pytest.param(b"\xc0\x03\x01\x40\x40", id="more bytes than items"),
        pytest.param(b"\x56\x02", id="a boolean of 2"),
        pytest.param(b"\x73\x00\x00\xd8\x00", id="a surrogate as a char"),
        pytest.param(b"\xa1\x01\xff", id="a string that is no UTF-8"),
        pytest.param(b"\xa3\x01\xff", id="a symbol that is no ASCII"),
        pytest.param(b"\xc0\x01\x01" * 3000, id="lists in lists in lists"),
        pytest.param(b"\x00" * 5000, id="descriptors of descriptors"),
    ],
)
def test_refused(raw: bytes) -> None:
    """Bytes that lie about themselves are refused, at once and without an allocation."""
    with pytest.raises(DecodeError):
        decode(raw)


def test_array_without_constructor() -> None:
    """An empty array may leave out its constructor, as some clients write it."""
    assert decode(b"\xe0\x01\x00") == (Array("null", ()), 3)


@pytest.mark.parametrize(
    "value",
    [Ubyte(256), Byte(-129), Uint(2**32), 2**63, Symbol("é"), object(), Array("nothing", ())],
)
def test_no_amqp_form(value: Any) -> None:
    """A value outside its type's range is not written."""
    with pytest.raises(EncodeError):
        encode(value)


def test_nan() -> None:
    """Not-a-number comes back as itself."""
    assert math.isnan(decode(encode(math.nan))[0])
    assert encode(Char("a")) == b"\x73" + struct.pack(">I", 97)
