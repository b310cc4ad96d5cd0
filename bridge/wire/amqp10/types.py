"""The primitive types of AMQP 1.0 (part 1, section 1.6), as one table of constructors.

A value keeps its wire type in its Python class: `Uint(5)` and `Long(5)` are equal as numbers and
different on the wire. Plain Python values stand for the obvious type: `int` long, `float` double,
`str` string, `bytes` binary, `bool`, `None`, `UUID`, `list`, `dict` map. A reader takes the buffer
and the position behind the constructor, and returns the value and the position behind it. Readers
trust the bytes: `decode` has walked over them first (`whole`), and so has who calls `read_value`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, SafeUUID

from bridge.wire.amqp10.errors import DecodeError, EncodeError
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
from bridge.wire.amqp10.whole import DEPTH_MAX, check, to_read

__all__ = [
    "CONSTRUCTORS",
    "NAMES",
    "UNREADABLE",
    "WRITERS",
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
    "Writer",
    "decode",
    "encode",
    "read_value",
    "write_binary",
    "write_boolean",
    "write_list",
    "write_map",
    "write_string",
    "write_symbol",
    "write_uint",
    "write_ulong",
]


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that says what it means."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type.

    Attributes:
        type: the elements' type by its name in `NAMES`.
        items: the elements, as plain or typed values.
        descriptor: what describes each element, or `None`.
    """

    type: str
    items: tuple[Any, ...]
    descriptor: Any = None


_set: Final = object.__setattr__
_UNKNOWN: Final = SafeUUID.unknown

Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any], bytes]


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
    """Read a uuid without `UUID`'s own constructor: it takes twice as long, of a megabyte 50 ms."""
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
    """Return the number of elements, where they begin and where they end."""
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


def _packed(format_: str) -> Writer:
    return struct.Struct(format_).pack


def _pack_sized(width: int, encode_text: Callable[[Any], bytes] = bytes) -> Writer:
    def write(value: Any) -> bytes:
        raw = encode_text(value)
        return len(raw).to_bytes(width, "big") + raw

    return write


def _list_elements(value: Any, depth: int) -> tuple[int, bytes]:
    return len(value), b"".join([_encode(item, depth) for item in value])


def _map_elements(value: Any, depth: int) -> tuple[int, bytes]:
    parts = [_encode(part, depth) for pair in value.items() for part in pair]
    return 2 * len(value), b"".join(parts)


def _array_elements(value: Array, depth: int) -> tuple[int, bytes]:
    constructor = NAMES.get(value.type)
    if constructor is None:
        raise EncodeError(f"{value.type!r} is no AMQP 1.0 type")
    descriptor = b"" if value.descriptor is None else b"\x00" + _encode(value.descriptor, depth)
    elements = _ELEMENTS.get(value.type)
    if elements is None:
        body = b"".join(map(constructor.write, value.items))
    else:
        _check_depth(depth)
        body = b"".join([_sized_by_32(*elements(item, depth + 1)) for item in value.items])
    return len(value.items), descriptor + bytes((constructor.code,)) + body


def _sized_by_32(count: int, body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


_ELEMENTS: Final[dict[str, Callable[[Any, int], tuple[int, bytes]]]] = {
    "list": _list_elements,
    "map": _map_elements,
    "array": _array_elements,
}


def _check_depth(depth: int) -> None:
    if depth >= DEPTH_MAX:
        raise EncodeError(f"the value nests deeper than {DEPTH_MAX}")


@dataclass(frozen=True, slots=True)
class Constructor:
    """One way to write one type.

    Attributes:
        code: the octet in front of the value.
        type: the type's name.
        width: bytes of the value, 0 for none, -1 when it says its own size.
        read: reader of the value behind the octet.
        write: writer of the value without the octet, or `None` when nobody writes it this way.
    """

    code: int
    type: str
    width: int
    read: Reader
    write: Writer


def _never(value: Any) -> bytes:
    raise EncodeError("this constructor is read, never written")


def _nothing(value: Any) -> bytes:
    return b""


def _utf8(value: str) -> bytes:
    return value.encode("utf-8")


def _ascii(value: str) -> bytes:
    return value.encode("ascii")


def _code_point(value: str) -> bytes:
    return ord(value).to_bytes(4, "big")


_TABLE: Final = (
    Constructor(0x40, "null", 0, _null, _nothing),
    Constructor(0x56, "boolean", 1, _boolean, lambda value: b"\x01" if value else b"\x00"),
    Constructor(0x41, "boolean", 0, _true, _nothing),
    Constructor(0x42, "boolean", 0, _false, _nothing),
    Constructor(0x50, "ubyte", 1, _octet(Ubyte), _packed(">B")),
    Constructor(0x60, "ushort", 2, _fixed(">H", Ushort), _packed(">H")),
    Constructor(0x70, "uint", 4, _fixed(">I", Uint), _packed(">I")),
    Constructor(0x52, "uint", 1, _octet(Uint), _packed(">B")),
    Constructor(0x43, "uint", 0, _constant(Uint(0)), _nothing),
    Constructor(0x80, "ulong", 8, _fixed(">Q", Ulong), _packed(">Q")),
    Constructor(0x53, "ulong", 1, _octet(Ulong), _packed(">B")),
    Constructor(0x44, "ulong", 0, _constant(Ulong(0)), _nothing),
    Constructor(0x51, "byte", 1, _fixed(">b", Byte), _packed(">b")),
    Constructor(0x61, "short", 2, _fixed(">h", Short), _packed(">h")),
    Constructor(0x71, "int", 4, _fixed(">i", Int), _packed(">i")),
    Constructor(0x54, "int", 1, _fixed(">b", Int), _packed(">b")),
    Constructor(0x81, "long", 8, _fixed(">q", Long), _packed(">q")),
    Constructor(0x55, "long", 1, _fixed(">b", Long), _packed(">b")),
    Constructor(0x72, "float", 4, _fixed(">f", Float), _packed(">f")),
    Constructor(0x82, "double", 8, _fixed(">d"), _packed(">d")),
    Constructor(0x74, "decimal32", 4, _opaque(4, Decimal32), bytes),
    Constructor(0x84, "decimal64", 8, _opaque(8, Decimal64), bytes),
    Constructor(0x94, "decimal128", 16, _opaque(16, Decimal128), bytes),
    Constructor(0x73, "char", 4, _char, _code_point),
    Constructor(0x83, "timestamp", 8, _fixed(">q", Timestamp), _packed(">q")),
    Constructor(0x98, "uuid", 16, _uuid, lambda value: value.bytes),
    Constructor(0xB0, "binary", -1, _sized32(None), _pack_sized(4)),
    Constructor(0xA0, "binary", -1, _sized8(None), _pack_sized(1)),
    Constructor(0xB1, "string", -1, _sized32(_string), _pack_sized(4, _utf8)),
    Constructor(0xA1, "string", -1, _sized8(_string), _pack_sized(1, _utf8)),
    Constructor(0xB3, "symbol", -1, _sized32(_symbol), _pack_sized(4, _ascii)),
    Constructor(0xA3, "symbol", -1, _sized8(_symbol), _pack_sized(1, _ascii)),
    Constructor(0xD0, "list", -1, _list(4), _never),
    Constructor(0xC0, "list", -1, _list(1), _never),
    Constructor(0x45, "list", 0, lambda raw, at: ([], at), _never),
    Constructor(0xD1, "map", -1, _map(4), _never),
    Constructor(0xC1, "map", -1, _map(1), _never),
    Constructor(0xF0, "array", -1, _array(4), _never),
    Constructor(0xE0, "array", -1, _array(1), _never),
)
"""Every constructor of AMQP 1.0. The first of a type takes all of its values: arrays use it."""

CONSTRUCTORS: Final = {row.code: row for row in _TABLE}
NAMES: Final[dict[str, Constructor]] = {row.type: row for row in reversed(_TABLE)}

_READERS: list[Reader | None] = [None] * 256
for _row in _TABLE:
    _READERS[_row.code] = _row.read


def _described(raw: bytes, at: int) -> tuple[Described, int]:
    descriptor, at = read_value(raw, at)
    value, at = read_value(raw, at)
    return Described(descriptor, value), at


_READERS[0x00] = _described


def read_value(raw: bytes, at: int) -> tuple[Any, int]:
    """Return the value at `at`, which `whole.check` has found whole, and the position behind it."""
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


def _prefixed(code: int, format_: str) -> Writer:
    pack = struct.Struct(">B" + format_).pack
    return lambda value: pack(code, value)


_LONG = _prefixed(0x81, "q")
_pack_u32 = struct.Struct(">BI").pack
_pack_u64 = struct.Struct(">BQ").pack


def write_uint(value: int) -> bytes:
    """Write a uint in its shortest form."""
    if 0 < value < 256:
        return bytes((0x52, value))
    return _pack_u32(0x70, value) if value else b"\x43"


def write_ulong(value: int) -> bytes:
    """Write a ulong in its shortest form."""
    if 0 < value < 256:
        return bytes((0x53, value))
    return _pack_u64(0x80, value) if value else b"\x44"


def _write_int(value: int) -> bytes:
    return _prefixed_i8(value) if -128 <= value < 128 else _INT(value)


_INT = _prefixed(0x71, "i")
_prefixed_i8 = _prefixed(0x54, "b")


def _write_sized(code: int, raw: bytes) -> bytes:
    size = len(raw)
    if size < 256:
        return bytes((code, size)) + raw
    return bytes((code + 0x10,)) + size.to_bytes(4, "big") + raw


def write_binary(value: bytes) -> bytes:
    """Write a binary in its shortest form."""
    return _write_sized(0xA0, value)


def write_string(value: str) -> bytes:
    """Write a string in its shortest form."""
    return _write_sized(0xA1, value.encode("utf-8"))


def write_symbol(value: str) -> bytes:
    """Write a symbol in its shortest form."""
    return _write_sized(0xA3, value.encode("ascii"))


def write_boolean(value: bool) -> bytes:
    """Write a boolean in its shortest form."""
    return b"\x41" if value else b"\x42"


def _write_compound(code: int, count: int, body: bytes) -> bytes:
    size = len(body) + 1
    if size < 256 and count < 256:
        return bytes((code, size, count)) + body
    return bytes((code + 0x10,)) + (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def write_list(count: int, body: bytes) -> bytes:
    """Write a list of `count` elements that are encoded already."""
    return _write_compound(0xC0, count, body) if count else b"\x45"


def write_map(value: dict[Any, Any]) -> bytes:
    """Write a map."""
    return _write_compound(0xC1, *_map_elements(value, 1))


def _coded(name: str) -> Writer:
    constructor = NAMES[name]
    prefix, write = bytes((constructor.code,)), constructor.write
    return lambda value: prefix + write(value)


WRITERS: Final[dict[type, Writer]] = {
    type(None): lambda value: b"\x40",
    bool: write_boolean,
    Ubyte: _prefixed(0x50, "B"),
    Ushort: _prefixed(0x60, "H"),
    Uint: write_uint,
    Ulong: write_ulong,
    Byte: _prefixed(0x51, "b"),
    Short: _prefixed(0x61, "h"),
    Int: _write_int,
    Long: _LONG,
    int: _LONG,
    Float: _prefixed(0x72, "f"),
    float: _prefixed(0x82, "d"),
    Decimal32: _coded("decimal32"),
    Decimal64: _coded("decimal64"),
    Decimal128: _coded("decimal128"),
    Char: _coded("char"),
    Timestamp: _prefixed(0x83, "q"),
    UUID: _coded("uuid"),
    bytes: write_binary,
    str: write_string,
    Symbol: write_symbol,
    KeyUuid: _coded("uuid"),
}
"""Python class -> writer of the whole value, constructor included; those that hold none."""


def encode(value: Any) -> bytes:
    """Return the AMQP 1.0 bytes of a value.

    Raises:
        EncodeError: the value has no AMQP 1.0 form, is out of its type's range, or nests too
            deeply.
    """
    return _encode(value, 0)


def _encode(value: Any, depth: int) -> bytes:
    kind = type(value)
    writer = WRITERS.get(kind)
    if writer is not None:
        try:
            return writer(value)
        except (struct.error, UnicodeEncodeError, OverflowError) as error:
            raise EncodeError(f"{value!r} is no {kind.__name__}: {error}") from None
    _check_depth(depth)
    if kind is list or kind is tuple:
        return write_list(*_list_elements(value, depth + 1))
    if kind is dict:
        return _write_compound(0xC1, *_map_elements(value, depth + 1))
    if kind is Array:
        return _write_compound(0xE0, *_array_elements(value, depth + 1))
    if kind is Described:
        return b"\x00" + _encode(value.descriptor, depth + 1) + _encode(value.value, depth + 1)
    raise EncodeError(f"{kind.__name__} has no AMQP 1.0 form")
