"""Primitive values as AMQP 1.0 bytes (part 1, section 1.6), each in its shortest form.

The functions take text as bytes, as `wire.mapping` has it. `wire.amqp10.writing` writes `str`.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import Final

NULL: Final = b"\x40"

_pack_uint: Final = struct.Struct(">BI").pack
_pack_ulong: Final = struct.Struct(">BQ").pack
_pack_smallint: Final = struct.Struct(">Bb").pack
_pack_int: Final = struct.Struct(">Bi").pack
_pack_long: Final = struct.Struct(">Bq").pack
_pack_double: Final = struct.Struct(">Bd").pack


def encode_boolean(value: bool) -> bytes:
    """Encode a boolean."""
    return b"\x41" if value else b"\x42"


def encode_uint(value: int) -> bytes:
    """Encode a uint."""
    if 0 < value < 256:
        return bytes((0x52, value))
    return _pack_uint(0x70, value) if value else b"\x43"


def encode_ulong(value: int) -> bytes:
    """Encode a ulong."""
    if 0 < value < 256:
        return bytes((0x53, value))
    return _pack_ulong(0x80, value) if value else b"\x44"


def encode_int(value: int) -> bytes:
    """Encode an int."""
    return _pack_smallint(0x54, value) if -128 <= value < 128 else _pack_int(0x71, value)


def encode_long(value: int) -> bytes:
    """Encode a long, always in eight bytes."""
    return _pack_long(0x81, value)


def encode_timestamp(value_ms: int) -> bytes:
    """Encode a timestamp from UTC milliseconds."""
    return _pack_long(0x83, value_ms)


def encode_double(value: float) -> bytes:
    """Encode a double."""
    return _pack_double(0x82, value)


def _sized32(code: int, raw: bytes) -> bytes:
    return bytes((code,)) + len(raw).to_bytes(4, "big") + raw


def encode_binary(raw: bytes) -> bytes:
    """Encode a binary."""
    return bytes((0xA0, len(raw))) + raw if len(raw) < 256 else _sized32(0xB0, raw)


def encode_string(utf8: bytes) -> bytes:
    """Encode a string from its UTF-8 bytes."""
    return bytes((0xA1, len(utf8))) + utf8 if len(utf8) < 256 else _sized32(0xB1, utf8)


def encode_symbol(ascii_: bytes) -> bytes:
    """Encode a symbol from its ASCII bytes."""
    return bytes((0xA3, len(ascii_))) + ascii_ if len(ascii_) < 256 else _sized32(0xB3, ascii_)


def encode_compound(code: int, count: int, body: bytes) -> bytes:
    """Encode a list (0xC0), map (0xC1) or array (0xE0) of encoded elements."""
    size = len(body) + 1
    if size < 256 and count < 256:
        return bytes((code, size, count)) + body
    return bytes((code + 0x10,)) + (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def encode_list(items: list[bytes]) -> bytes:
    """Encode a list of encoded values."""
    if not items:
        return b"\x45"
    body, count = b"".join(items), len(items)
    if len(body) < 255 and count < 256:
        return bytes((0xC0, len(body) + 1, count)) + body
    return encode_compound(0xC0, count, body)


def encode_map(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Encode a map of pairs of encoded keys and values."""
    body, count = b"".join(chain.from_iterable(pairs)), 2 * len(pairs)
    if len(body) < 255 and count < 256:
        return bytes((0xC1, len(body) + 1, count)) + body
    return encode_compound(0xC1, count, body)
