"""Python values as AMQP 1.0 bytes; `wire.amqp10.types` has the Python class of each type."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.errors import EncodeError
from bridge.wire.amqp10.primitives import (
    NULL,
    encode_binary,
    encode_boolean,
    encode_compound,
    encode_double,
    encode_int,
    encode_list,
    encode_long,
    encode_string,
    encode_symbol,
    encode_timestamp,
    encode_uint,
    encode_ulong,
)
from bridge.wire.amqp10.scalars import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Encoded,
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
from bridge.wire.amqp10.types import Array, Described
from bridge.wire.amqp10.whole import DEPTH_MAX

Writer = Callable[[Any], bytes]


def _prefixed(code: int, format_: str) -> Writer:
    pack = struct.Struct(">B" + format_).pack
    return lambda value: pack(code, value)


def write_string(value: str) -> bytes:
    """Write a string."""
    return encode_string(value.encode("utf-8"))


def write_symbol(value: str) -> bytes:
    """Write a symbol."""
    return encode_symbol(value.encode("ascii"))


def _write_char(value: str) -> bytes:
    return b"\x73" + ord(value).to_bytes(4, "big")


def _write_uuid(value: UUID) -> bytes:
    return b"\x98" + value.bytes


WRITERS: Final[dict[type, Writer]] = {
    type(None): lambda value: NULL,
    bool: encode_boolean,
    Ubyte: _prefixed(0x50, "B"),
    Ushort: _prefixed(0x60, "H"),
    Uint: encode_uint,
    Ulong: encode_ulong,
    Byte: _prefixed(0x51, "b"),
    Short: _prefixed(0x61, "h"),
    Int: encode_int,
    Long: encode_long,
    int: encode_long,
    Float: _prefixed(0x72, "f"),
    float: encode_double,
    Decimal32: lambda value: b"\x74" + value,
    Decimal64: lambda value: b"\x84" + value,
    Decimal128: lambda value: b"\x94" + value,
    Decimal: encode_decimal,
    Char: _write_char,
    Timestamp: encode_timestamp,
    UUID: _write_uuid,
    bytes: encode_binary,
    str: write_string,
    Symbol: write_symbol,
    KeyUuid: _write_uuid,
    Encoded: lambda value: value,
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
    if depth >= DEPTH_MAX:
        raise _too_deep()
    if kind is list or kind is tuple:
        return encode_list([_encode(item, depth + 1) for item in value])
    if kind is dict:
        return encode_compound(0xC1, *_map_elements(value, depth + 1))
    if kind is Array:
        return encode_compound(0xE0, *_array_elements(value, depth + 1))
    if kind is Described:
        return b"\x00" + _encode(value.descriptor, depth + 1) + _encode(value.value, depth + 1)
    raise EncodeError(f"{kind.__name__} has no AMQP 1.0 form")


def _too_deep() -> EncodeError:
    return EncodeError(f"the value nests deeper than {DEPTH_MAX}")


def write_map(value: dict[Any, Any]) -> bytes:
    """Write a map."""
    return encode_compound(0xC1, *_map_elements(value, 1))


def _list_elements(value: Any, depth: int) -> tuple[int, bytes]:
    return len(value), b"".join([_encode(item, depth) for item in value])


def _map_elements(value: Any, depth: int) -> tuple[int, bytes]:
    parts: list[bytes] = []
    for key, item in value.items():
        parts += (_encode(key, depth), _encode(item, depth))
    return 2 * len(value), b"".join(parts)


def _array_elements(value: Array, depth: int) -> tuple[int, bytes]:
    found = _IN_ARRAYS.get(value.type)
    if found is None:
        raise EncodeError(f"{value.type!r} is no AMQP 1.0 type")
    code, write = found
    descriptor = b"" if value.descriptor is None else b"\x00" + _encode(value.descriptor, depth)
    elements = _ELEMENTS.get(value.type)
    if elements is None:
        body = b"".join(map(write, value.items))
    else:
        if depth >= DEPTH_MAX:
            raise _too_deep()
        body = b"".join([_sized_by_32(*elements(item, depth + 1)) for item in value.items])
    return len(value.items), descriptor + bytes((code,)) + body


def _sized_by_32(count: int, body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


_ELEMENTS: Final[dict[str, Callable[[Any, int], tuple[int, bytes]]]] = {
    "list": _list_elements,
    "map": _map_elements,
    "array": _array_elements,
}


def _sized(encode_text: Callable[[Any], bytes]) -> Writer:
    def write(value: Any) -> bytes:
        raw = encode_text(value)
        return len(raw).to_bytes(4, "big") + raw

    return write


def _never(value: Any) -> bytes:
    raise EncodeError("compounds are written by their elements")


_IN_ARRAYS: Final[dict[str, tuple[int, Writer]]] = {
    "null": (0x40, lambda value: b""),
    "boolean": (0x56, lambda value: b"\x01" if value else b"\x00"),
    "ubyte": (0x50, struct.Struct(">B").pack),
    "ushort": (0x60, struct.Struct(">H").pack),
    "uint": (0x70, struct.Struct(">I").pack),
    "ulong": (0x80, struct.Struct(">Q").pack),
    "byte": (0x51, struct.Struct(">b").pack),
    "short": (0x61, struct.Struct(">h").pack),
    "int": (0x71, struct.Struct(">i").pack),
    "long": (0x81, struct.Struct(">q").pack),
    "float": (0x72, struct.Struct(">f").pack),
    "double": (0x82, struct.Struct(">d").pack),
    "decimal32": (0x74, bytes),
    "decimal64": (0x84, bytes),
    "decimal128": (0x94, bytes),
    "char": (0x73, lambda value: ord(value).to_bytes(4, "big")),
    "timestamp": (0x83, struct.Struct(">q").pack),
    "uuid": (0x98, lambda value: value.bytes),
    "binary": (0xB0, _sized(bytes)),
    "string": (0xB1, _sized(str.encode)),
    "symbol": (0xB3, _sized(lambda value: value.encode("ascii"))),
    "list": (0xD0, _never),
    "map": (0xD1, _never),
    "array": (0xF0, _never),
}
"""Type -> its constructor that takes all its values, and the writer of one without it."""
