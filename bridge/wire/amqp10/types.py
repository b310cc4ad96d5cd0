"""The primitive types of AMQP 1.0 (part 1, section 1.6): one table of constructors, and reading.

A value keeps its wire type in its Python class: `Uint(5)` and `Long(5)` are equal as numbers and
different on the wire. Plain Python values stand for the obvious type: `int` long, `float` double,
`str` string, `bytes` binary, `bool`, `None`, `UUID`, `list`, `dict` map. A reader takes the buffer
and the position behind the constructor, and returns the value and the position behind the value.
Readers trust the bytes: `decode`, and every caller of `read_value`, checks them first (`whole`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, SafeUUID

from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.scalars import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Float,
    Int,
    KeyUuid,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from bridge.wire.amqp10.whole import check, to_read

__all__ = [
    "CONSTRUCTORS",
    "UNREADABLE",
    "Array",
    "Byte",
    "Char",
    "Constructor",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "Float",
    "Int",
    "Long",
    "Reader",
    "Short",
    "Symbol",
    "Timestamp",
    "Ubyte",
    "Uint",
    "Ulong",
    "Ushort",
    "decode",
    "read_value",
]


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor, which gives its meaning."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type.

    Attributes:
        type: the elements' type by its name in `CONSTRUCTORS`.
        items: the elements, as plain or typed values.
        descriptor: the descriptor of each element, or `None`.
    """

    type: str
    items: tuple[Any, ...]
    descriptor: Any = None


_set: Final = object.__setattr__
_UNKNOWN: Final = SafeUUID.unknown

Reader = Callable[[bytes, int], tuple[Any, int]]


def _null(raw: bytes, at: int) -> tuple[None, int]:
    return None, at


def _true(raw: bytes, at: int) -> tuple[bool, int]:
    return True, at


def _false(raw: bytes, at: int) -> tuple[bool, int]:
    return False, at


def _boolean(raw: bytes, at: int) -> tuple[bool, int]:
    octet = raw[at]
    if octet > 1:
        raise DecodeError(f"0x{octet:02x} at byte {at} is no boolean")
    return octet == 1, at + 1


def _constant(value: Any) -> Reader:
    return lambda raw, at: (value, at)


def _octet(kind: Callable[[int], Any]) -> Reader:
    return lambda raw, at: (kind(raw[at]), at + 1)


def _fixed(format_: str, kind: Callable[[Any], Any] | None = None) -> Reader:
    layout = struct.Struct(format_)
    unpack, width = layout.unpack_from, layout.size
    if kind is None:
        return lambda raw, at: (unpack(raw, at)[0], at + width)
    return lambda raw, at: (kind(unpack(raw, at)[0]), at + width)


def _char(raw: bytes, at: int) -> tuple[Char, int]:
    value = int.from_bytes(_bytes(raw, at, 4), "big")
    if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        raise DecodeError(f"U+{value:X} at byte {at} is no Unicode character")
    return Char(chr(value)), at + 4


def _bytes(raw: bytes, at: int, width: int) -> bytes:
    end = at + width
    if end > len(raw):
        raise DecodeError(f"{width} bytes at byte {at} are cut short")
    return raw[at:end]


def _opaque(width: int, kind: Callable[[bytes], Any]) -> Reader:
    return lambda raw, at: (kind(_bytes(raw, at, width)), at + width)


def _uuid(raw: bytes, at: int) -> tuple[UUID, int]:
    """Read a uuid without `UUID`'s constructor, which takes twice as long: 50 ms a megabyte."""
    number = int.from_bytes(_bytes(raw, at, 16), "big")
    value = object.__new__(UUID)
    _set(value, "int", number)
    _set(value, "is_safe", _UNKNOWN)
    return value, at + 16


def _sized8(kind: Callable[[bytes], Any] | None) -> Reader:
    def read(raw: bytes, at: int) -> tuple[Any, int]:
        start = at + 1
        end = start + raw[at]
        if end > len(raw):
            raise DecodeError(f"{raw[at]} bytes at byte {at} are cut short")
        return (raw[start:end] if kind is None else kind(raw[start:end])), end

    return read


def _sized32(kind: Callable[[bytes], Any] | None) -> Reader:
    def read(raw: bytes, at: int) -> tuple[Any, int]:
        start = at + 4
        size = int.from_bytes(raw[at:start], "big")
        end = start + size
        if end > len(raw) or start > len(raw):
            raise DecodeError(f"{size} bytes at byte {at} are cut short")
        return (raw[start:end] if kind is None else kind(raw[start:end])), end

    return read


def _string(raw: bytes) -> str:
    return raw.decode("utf-8")


def _symbol(raw: bytes) -> Symbol:
    return Symbol(raw.decode("ascii"))


def _compound(raw: bytes, at: int, width: int) -> tuple[int, int, int]:
    """Return the number of elements, and the positions of their start and end."""
    start = at + 2 * width
    count = int.from_bytes(raw[at + width : start], "big")
    return count, start, at + width + int.from_bytes(raw[at : at + width], "big")


def _list(width: int) -> Reader:
    def read(raw: bytes, at: int) -> tuple[list[Any], int]:
        count, at, end = _compound(raw, at, width)
        items = []
        for _ in range(count):
            value, at = read_value(raw, at)
            items.append(value)
        return items, end

    return read


def _map(width: int) -> Reader:
    def read(raw: bytes, at: int) -> tuple[dict[Any, Any], int]:
        count, at, end = _compound(raw, at, width)
        pairs: dict[Any, Any] = {}
        for _ in range(count // 2):
            if raw[at] == 0xA1:  # most keys are short strings: no call for these
                start = at + 2
                at = start + raw[at + 1]
                key: Any = raw[start:at].decode()
            else:
                key, at = read_value(raw, at)
            value, at = read_value(raw, at)
            pairs[KeyUuid(int=key.int) if type(key) is UUID else key] = value
        return pairs, end

    return read


def _array(width: int) -> Reader:
    def read(raw: bytes, at: int) -> tuple[Array, int]:
        count, at, end = _compound(raw, at, width)
        descriptor = None
        if at == end:
            return Array("null", ()), end
        if raw[at] == 0x00:
            descriptor, at = read_value(raw, at + 1)
        constructor = CONSTRUCTORS[raw[at]]
        at += 1
        items = []
        for _ in range(count):
            value, at = constructor.read(raw, at)
            items.append(value)
        return Array(constructor.type, tuple(items), descriptor), end

    return read


@dataclass(frozen=True, slots=True)
class Constructor:
    """A constructor: one form of one type on the wire.

    Attributes:
        code: the octet in front of the value.
        type: the type's name.
        width: bytes of the value; 0 for none, -1 for a value with its size in front.
        read: reader of the value behind the octet.
    """

    code: int
    type: str
    width: int
    read: Reader


_TABLE: Final = (
    Constructor(0x40, "null", 0, _null),
    Constructor(0x56, "boolean", 1, _boolean),
    Constructor(0x41, "boolean", 0, _true),
    Constructor(0x42, "boolean", 0, _false),
    Constructor(0x50, "ubyte", 1, _octet(Ubyte)),
    Constructor(0x60, "ushort", 2, _fixed(">H", Ushort)),
    Constructor(0x70, "uint", 4, _fixed(">I", Uint)),
    Constructor(0x52, "uint", 1, _octet(Uint)),
    Constructor(0x43, "uint", 0, _constant(Uint(0))),
    Constructor(0x80, "ulong", 8, _fixed(">Q", Ulong)),
    Constructor(0x53, "ulong", 1, _octet(Ulong)),
    Constructor(0x44, "ulong", 0, _constant(Ulong(0))),
    Constructor(0x51, "byte", 1, _fixed(">b", Byte)),
    Constructor(0x61, "short", 2, _fixed(">h", Short)),
    Constructor(0x71, "int", 4, _fixed(">i", Int)),
    Constructor(0x54, "int", 1, _fixed(">b", Int)),
    Constructor(0x81, "long", 8, _fixed(">q", Long)),
    Constructor(0x55, "long", 1, _fixed(">b", Long)),
    Constructor(0x72, "float", 4, _fixed(">f", Float)),
    Constructor(0x82, "double", 8, _fixed(">d")),
    Constructor(0x74, "decimal32", 4, _opaque(4, Decimal32)),
    Constructor(0x84, "decimal64", 8, _opaque(8, Decimal64)),
    Constructor(0x94, "decimal128", 16, _opaque(16, Decimal128)),
    Constructor(0x73, "char", 4, _char),
    Constructor(0x83, "timestamp", 8, _fixed(">q", Timestamp)),
    Constructor(0x98, "uuid", 16, _uuid),
    Constructor(0xB0, "binary", -1, _sized32(None)),
    Constructor(0xA0, "binary", -1, _sized8(None)),
    Constructor(0xB1, "string", -1, _sized32(_string)),
    Constructor(0xA1, "string", -1, _sized8(_string)),
    Constructor(0xB3, "symbol", -1, _sized32(_symbol)),
    Constructor(0xA3, "symbol", -1, _sized8(_symbol)),
    Constructor(0xD0, "list", -1, _list(4)),
    Constructor(0xC0, "list", -1, _list(1)),
    Constructor(0x45, "list", 0, lambda raw, at: ([], at)),
    Constructor(0xD1, "map", -1, _map(4)),
    Constructor(0xC1, "map", -1, _map(1)),
    Constructor(0xF0, "array", -1, _array(4)),
    Constructor(0xE0, "array", -1, _array(1)),
)
"""Every constructor of AMQP 1.0."""

CONSTRUCTORS: Final = {row.code: row for row in _TABLE}

_READERS: list[Reader | None] = [None] * 256
for _row in _TABLE:
    _READERS[_row.code] = _row.read


def _described(raw: bytes, at: int) -> tuple[Described, int]:
    descriptor, at = read_value(raw, at)
    value, at = read_value(raw, at)
    return Described(descriptor, value), at


_READERS[0x00] = _described


def read_value(raw: bytes, at: int) -> tuple[Any, int]:
    """Return the value at `at`, and the position behind it; `whole.check` must have passed it."""
    read = _READERS[raw[at]]
    if read is None:
        raise DecodeError(f"0x{raw[at]:02x} at byte {at} is no AMQP 1.0 constructor")
    return read(raw, at + 1)


UNREADABLE: Final = (IndexError, struct.error, UnicodeDecodeError)
"""What readers raise, beside `DecodeError`, for bytes that end too early."""


def decode(raw: bytes, at: int = 0) -> tuple[Any, int]:
    """Return the value that begins at `at`, and the position behind it.

    Raises:
        DecodeError: there is no whole value, or it would take too much memory for its size.
    """
    check(raw, at, len(raw), to_read(len(raw) - at))
    return read_value(raw, at)
