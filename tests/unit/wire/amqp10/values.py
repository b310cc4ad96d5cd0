"""AMQP 1.0 values for tests: one of each type, and strategies that make any."""

from __future__ import annotations

import math
import uuid
from typing import Any

from hypothesis import strategies as st

from bridge.wire.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
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


def integers_of(kind: type, bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    """Return numbers of a type, its edges included."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(kind)


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "ubyte": integers_of(Ubyte, 8, signed=False),
    "ushort": integers_of(Ushort, 16, signed=False),
    "uint": integers_of(Uint, 32, signed=False),
    "ulong": integers_of(Ulong, 64, signed=False),
    "byte": integers_of(Byte, 8, signed=True),
    "short": integers_of(Short, 16, signed=True),
    "int": integers_of(Int, 32, signed=True),
    "long": integers_of(Long, 64, signed=True),
    "float": st.floats(width=32, allow_nan=False).map(Float),
    "double": st.floats(allow_nan=False),
    "decimal32": st.binary(min_size=4, max_size=4).map(Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(Decimal128),
    "char": st.characters(exclude_categories=["Cs"]).map(Char),
    "timestamp": integers_of(Timestamp, 64, signed=True),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=300),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    "symbol": st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol),
}
"""A strategy for each type that holds no other values."""


def arrays() -> st.SearchStrategy[Array]:
    """Return arrays of scalars, some of them described."""
    return st.sampled_from(sorted(SCALARS)).flatmap(
        lambda name: st.builds(
            Array,
            st.just(name),
            st.lists(SCALARS[name], max_size=5).map(tuple),
            st.none() | SCALARS["ulong"] | SCALARS["symbol"],
        )
    )


_scalar = st.one_of(*SCALARS.values())

VALUES: st.SearchStrategy[Any] = st.recursive(
    _scalar | arrays(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(SCALARS["string"] | SCALARS["symbol"], inner, max_size=5),
        st.builds(Described, SCALARS["ulong"] | SCALARS["symbol"], inner),
    ),
    max_leaves=12,
)
"""Any value."""

EXAMPLES: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True, False],
    "ubyte": [Ubyte(0), Ubyte(255)],
    "ushort": [Ushort(0), Ushort(65535)],
    "uint": [Uint(0), Uint(1), Uint(255), Uint(256), Uint(2**32 - 1)],
    "ulong": [Ulong(0), Ulong(1), Ulong(255), Ulong(256), Ulong(2**64 - 1)],
    "byte": [Byte(-128), Byte(127)],
    "short": [Short(-32768), Short(32767)],
    "int": [Int(-(2**31)), Int(-128), Int(127), Int(2**31 - 1)],
    "long": [Long(-(2**63)), Long(-128), Long(127), Long(2**63 - 1)],
    "float": [Float(0.0), Float(-1.5), Float(math.inf)],
    "double": [0.0, -1.5, 1e300, math.inf],
    "decimal32": [Decimal32(bytes.fromhex("22500001"))],
    "decimal64": [Decimal64(bytes.fromhex("2234000000000001"))],
    "decimal128": [Decimal128(bytes.fromhex("22080000000000000000000000000001"))],
    "char": [Char("a"), Char("é"), Char("\U0001f600")],
    "timestamp": [Timestamp(0), Timestamp(-1), Timestamp(253402300799999)],
    "uuid": [uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")],
    "binary": [b"", b"\x00\xff", b"x" * 255, b"x" * 256],
    "string": ["", "hello", "\u2603\U0001f600", "x" * 255, "x" * 256],
    "symbol": [Symbol(""), Symbol("amqp:open:list"), Symbol("x" * 256)],
    "list": [[], [1, "two", [b"three", None]], [Uint(0)] * 300],
    "map": [{}, {"a": Int(1), Symbol("b"): {"c": None}}],
    "array": [
        Array("int", (Int(1), Int(-(2**31)))),
        Array("uuid", (uuid.UUID(int=1), uuid.UUID(int=2))),
        Array("symbol", (Symbol("a"), Symbol("b" * 300))),
        Array("long", ()),
        Array("timestamp", (Timestamp(1),) * 300),
        Array("boolean", (True, False)),
    ],
    "described": [Described(Ulong(0x77), "x"), Described(Symbol("com.example:x"), [1, 2])],
}
"""Values at the edges of each type, for peers that are not ours."""
