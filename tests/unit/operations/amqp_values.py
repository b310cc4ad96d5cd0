"""Encoded AMQP 1.0 values of every type, as hypothesis strategies."""

from __future__ import annotations

import math
from decimal import Decimal

from hypothesis import strategies as st

from bridge.wire.amqp10 import scalars
from bridge.wire.amqp10.primitives import encode_list, encode_map
from bridge.wire.amqp10.types import Array
from bridge.wire.amqp10.writing import encode


def whole(kind: type, bits: int, *, is_signed: bool) -> st.SearchStrategy:
    """Return the numbers of a type, the ends of its range often among them."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    return (st.integers(low, high) | st.sampled_from((low, high, 0))).map(kind)


DOUBLES = st.floats().map(lambda value: math.nan if math.isnan(value) else value)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
SYMBOLS = st.text(st.characters(max_codepoint=127), max_size=20).map(scalars.Symbol)

SCALARS = {
    "boolean": st.booleans(),
    "ubyte": whole(scalars.Ubyte, 8, is_signed=False),
    "ushort": whole(scalars.Ushort, 16, is_signed=False),
    "uint": whole(scalars.Uint, 32, is_signed=False),
    "ulong": whole(scalars.Ulong, 64, is_signed=False),
    "byte": whole(scalars.Byte, 8, is_signed=True),
    "short": whole(scalars.Short, 16, is_signed=True),
    "int": whole(scalars.Int, 32, is_signed=True),
    "long": whole(scalars.Long, 64, is_signed=True),
    "float": st.floats(width=32).map(
        lambda value: scalars.Float(math.nan if math.isnan(value) else value)
    ),
    "double": DOUBLES,
    "decimal32": st.binary(min_size=4, max_size=4).map(scalars.Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(scalars.Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(scalars.Decimal128),
    "char": st.characters(exclude_categories=("Cs",)).map(scalars.Char),
    "timestamp": whole(scalars.Timestamp, 64, is_signed=True),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=20),
    "string": TEXTS,
    "symbol": SYMBOLS,
}
"""Values of each type that holds no others, by its name."""

DECIMALS = st.decimals(
    min_value=-(10**20), max_value=10**20, places=5, allow_nan=False, allow_infinity=False
).map(lambda value: Decimal(value))

ENCODED_SCALARS = st.one_of(st.none(), DECIMALS, *SCALARS.values()).map(encode)


@st.composite
def encoded(draw: st.DrawFn, depth: int = 3) -> bytes:
    """Return encoded values of every type, in the form that `encode` gives them."""
    form = draw(st.sampled_from(("scalar", "array", "list", "map", "named", "described")))
    if form == "scalar" or not depth:
        return draw(ENCODED_SCALARS)
    if form == "array":
        kind = draw(st.sampled_from(sorted(SCALARS)))
        return encode(Array(kind, tuple(draw(SCALARS[kind]) for _ in range(draw(COUNTS) + 1))))
    inner = [draw(encoded(depth - 1)) for _ in range(draw(COUNTS))]
    if form == "list":
        return encode_list(inner)
    if form == "described":
        descriptor = draw(SYMBOLS | SCALARS["ulong"])
        return b"\x00" + encode(descriptor) + draw(encoded(depth - 1))
    keys = TEXTS.map(encode) if form == "named" else ENCODED_SCALARS
    unique = draw(st.lists(keys, min_size=len(inner), max_size=len(inner), unique=True))
    return encode_map(list(zip(unique, inner, strict=True)))


COUNTS = st.integers(0, 3)
