"""One value: AMQP 1.0 encoding <-> 0-9-1 header field.

The table `FROM_AMQP` is the mapping: for each AMQP 1.0 constructor the letter of the 0-9-1 field
type (as RabbitMQ reads it), and whether the way back gives the same value and type.
docs/mapping.md explains the mapping.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from uuid import UUID

from bridge.model.decimals import text_of
from bridge.wire.amqp10.decimals import decode_decimal
from bridge.wire.amqp10.primitives import (
    NULL,
    encode_binary,
    encode_boolean,
    encode_double,
    encode_int,
    encode_long,
    encode_string,
    encode_timestamp,
    encode_uint,
)
from bridge.wire.amqp10.scalars import Byte, Float, Short, Ubyte, Ushort
from bridge.wire.amqp10.writing import WRITERS
from bridge.wire.basic import FieldValue, decimal_double, shown_string, shown_text


class MappingError(ValueError):
    """Error for bytes that are no AMQP 1.0 message; the text says where and why."""


_FIXED_WIDTH = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
"""Width in bytes by the constructor's upper half (AMQP 1.0, 1.2)."""


_DESCRIBED_DEPTH_MAX = 16
"""Maximum nesting of descriptors: nobody sends more than one level."""


def skip_value(raw: bytes, at: int, depth: int = 0) -> int:
    """Return the position behind the AMQP 1.0 value that begins at `at`.

    Raises:
        MappingError: the value is incomplete, has an unknown constructor, or too many descriptors.
    """
    try:
        code = raw[at]
        at += 1
        if code == 0x00:
            if depth == _DESCRIBED_DEPTH_MAX:
                raise MappingError(f"the value at byte {at} is described too many times over")
            return skip_value(raw, skip_value(raw, at, depth + 1), depth + 1)
        category = code >> 4
        if category in _FIXED_WIDTH:
            end = at + _FIXED_WIDTH[category]
        elif category in (0xA, 0xC, 0xE):
            end = at + 1 + raw[at]
        elif category in (0xB, 0xD, 0xF):
            end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
        else:
            raise MappingError(f"0x{code:02x} at byte {at - 1} is no AMQP 1.0 constructor")
    except IndexError:
        raise MappingError(f"the value at byte {at} is cut short") from None
    if end > len(raw):
        raise MappingError(f"the value at byte {at} is cut short")
    return end


def textual(raw: bytes, start: int, end: int) -> bytes | None:
    """Return the content of a string, symbol or binary, in the short or long form; else `None`.

    Names are compared by content: SDKs treat the short and the long form, and often all three
    types, as equal.
    """
    code = raw[start]
    if code in (0xA0, 0xA1, 0xA3):
        return raw[start + 2 : end]
    return raw[start + 5 : end] if code in (0xB0, 0xB1, 0xB3) else None


ITEMS_MAX = 2_048
"""Maximum of items in a list or map; higher for items of 16 bytes and more on average."""


def _number(format_: str) -> Callable[[bytes], object]:
    unpack = struct.Struct(format_).unpack
    return lambda raw: unpack(raw)[0]


def _utf8(raw: bytes) -> bytes:
    raw.decode()
    return raw


def _decimal_text(code: int) -> Callable[[bytes], object]:
    head = bytes((code,))

    def read(raw: bytes) -> object:
        value = decode_decimal(head + raw)
        return None if value is None else text_of(value).encode()

    return read


FROM_AMQP: dict[int, tuple[str, str, bool, Callable[[bytes], object]]] = {
    0x40: ("null", "V", True, lambda raw: None),
    0x41: ("boolean", "t", True, lambda raw: True),
    0x42: ("boolean", "t", True, lambda raw: False),
    0x56: ("boolean", "t", True, lambda raw: raw[0] != 0),
    0x50: ("ubyte", "B", True, lambda raw: raw[0]),
    0x51: ("byte", "b", True, _number(">b")),
    0x60: ("ushort", "u", True, _number(">H")),
    0x61: ("short", "s", True, _number(">h")),
    0x70: ("uint", "i", True, _number(">I")),
    0x52: ("uint", "i", True, lambda raw: raw[0]),
    0x43: ("uint", "i", True, lambda raw: 0),
    0x71: ("int", "I", True, _number(">i")),
    0x54: ("int", "I", True, _number(">b")),
    0x80: ("ulong", "l", False, _number(">Q")),
    0x53: ("ulong", "l", False, lambda raw: raw[0]),
    0x44: ("ulong", "l", False, lambda raw: 0),
    0x81: ("long", "l", True, _number(">q")),
    0x55: ("long", "l", True, _number(">b")),
    0x72: ("float", "f", True, _number(">f")),
    0x82: ("double", "d", True, _number(">d")),
    0x74: ("decimal32", "S", False, _decimal_text(0x74)),
    0x84: ("decimal64", "S", False, _decimal_text(0x84)),
    0x94: ("decimal128", "S", False, _decimal_text(0x94)),
    0x73: ("char", "S", False, lambda raw: raw.decode("utf-32-be", "replace").encode()),
    0x83: ("timestamp", "T", False, _number(">q")),
    0x98: ("uuid", "S", False, lambda raw: str(UUID(bytes=raw)).encode()),
    0xA0: ("binary", "x", True, bytes),
    0xB0: ("binary", "x", True, bytes),
    0xA1: ("string", "S", True, _utf8),
    0xB1: ("string", "S", True, _utf8),
    0xA3: ("symbol", "S", False, bytes),
    0xB3: ("symbol", "S", False, bytes),
}
"""AMQP 1.0 constructor -> (its name, letter of the 0-9-1 field, whether exact, reader).

Unlisted types (lists, maps, arrays, described values) have no readable form."""

_INT64_MAX = 2**63 - 1


def field_of(raw: bytes, start: int, end: int) -> tuple[FieldValue | None, bool]:
    """Return the 0-9-1 field of the AMQP 1.0 value `raw[start:end]`, and whether it is exact.

    The field is `None` if 0-9-1 has no form for the value at all.
    """
    entry = FROM_AMQP.get(raw[start])
    if entry is None:
        return None, False
    _, letter, is_exact, read = entry
    code = raw[start]
    body_at = start + 1
    if code >= 0xA0:
        body_at += 1 if code < 0xB0 else 4
    try:
        value = read(raw[body_at:end])
    except (UnicodeDecodeError, struct.error):
        return None, False
    if value is None and letter != "V":
        return None, False
    if letter == "T":
        assert isinstance(value, int)
        if value < 0:
            return None, False
        return ("T", value // 1000), value % 1000 == 0
    if isinstance(value, float) and not math.isfinite(value):
        # RabbitMQ (Erlang) has no NaN and no infinity: it closes the connection over one with 541.
        return None, False
    if code in (0x80, 0x53, 0x44) and isinstance(value, int) and value > _INT64_MAX:
        return None, False
    return (letter, value), is_exact


def utf8(text: str) -> bytes:
    """Return a 0-9-1 string as UTF-8; RabbitMQ takes any bytes, AMQP 1.0 does not."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return shown_string(text).encode()


def timestamp_of(value_ms: int) -> bytes:
    """Encode a timestamp from UTC milliseconds; a later time becomes the type's maximum."""
    return encode_timestamp(min(value_ms, _INT64_MAX))


def _text_or_binary(value: object) -> bytes:
    assert isinstance(value, bytes)
    try:
        value.decode()
    except UnicodeDecodeError:
        return encode_binary(value)
    return encode_string(value)


TO_AMQP: dict[str, Callable[..., bytes]] = {
    "V": lambda value: NULL,
    "t": encode_boolean,
    "B": WRITERS[Ubyte],
    "b": WRITERS[Byte],
    "u": WRITERS[Ushort],
    "s": WRITERS[Short],
    "i": encode_uint,
    "I": encode_int,
    "l": encode_long,
    "L": encode_long,
    "f": WRITERS[Float],
    "d": encode_double,
    "D": lambda value: encode_double(decimal_double(("D", value))),
    "T": lambda value: timestamp_of(value * 1000),
    "S": _text_or_binary,
    "x": encode_binary,
}
"""Letter of the 0-9-1 field -> AMQP 1.0 encoder; tables (F) and arrays (A) are below."""

AMQP_ENCODED = "amqp-1.0"
"""Letter of a field that holds an encoded AMQP 1.0 value unchanged. Such fields exist in memory
only (a disposition's properties on their way into a message): 0-9-1 has no such type."""


def encode_field(field: FieldValue) -> bytes:
    """Return the AMQP 1.0 encoding of a 0-9-1 field; tables and arrays become JSON text.

    Application properties are of simple types (part 3, section 3.2.5): for a map or a list in them
    .NET throws, and the message is not received.
    """
    letter, value = field
    encode = TO_AMQP.get(letter)
    if encode is not None:
        return encode(value)
    if letter == AMQP_ENCODED:
        assert isinstance(value, bytes)
        return value
    assert letter in ("F", "A"), letter
    return encode_string(json.dumps(_plain(field)).encode())


def _plain(field: FieldValue) -> object:
    """Return a field in JSON's types: bytes as text, a decimal as a float, a time in seconds."""
    letter, value = field
    if isinstance(value, dict):
        return {utf8(key).decode(): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return shown_text(value)
    if letter == "D":
        return decimal_double(field)
    return value


def compound_items(raw: bytes, start: int) -> list[tuple[int, int]]:
    """Return start and end of each item of the AMQP 1.0 list or map at `start`.

    Raises:
        MappingError: the value at `start` is no list or map, or incomplete.
    """
    limit = skip_value(raw, start)
    code = raw[start]
    if code == 0x45:
        return []
    if code in (0xC0, 0xC1):
        count, at = int.from_bytes(raw[start + 2 : start + 3], "big"), start + 3
    elif code in (0xD0, 0xD1):
        count, at = int.from_bytes(raw[start + 5 : start + 9], "big"), start + 9
    else:
        raise MappingError(f"0x{code:02x} at byte {start} is neither a list nor a map")
    if code in (0xC1, 0xD1) and count % 2:
        raise MappingError(f"the map at byte {start} has a key without a value")
    if count > ITEMS_MAX + (limit - start) // 16:
        raise MappingError(f"{count} items at byte {start} are too many for their bytes")
    items = []
    for _ in range(count):
        code = raw[at] if at < limit else 0
        if 0xA0 <= code < 0xB0 and at + 1 < limit:  # most are short text: no call for these
            end = at + 2 + raw[at + 1]
        elif code == 0x40:
            end = at + 1
        else:
            end = skip_value(raw, at)
        if end > limit:
            raise MappingError(f"an item at byte {at} reaches beyond its list or map")
        items.append((at, end))
        at = end
    return items


Span = tuple[int, int]


def map_items(raw: bytes, start: int) -> list[tuple[Span, Span]]:
    """Return start and end of each key, and of its value, of the AMQP 1.0 map at `start`.

    Raises:
        MappingError: the value at `start` is no map, or incomplete.
    """
    items = compound_items(raw, start)
    if raw[start] not in (0xC1, 0xD1):
        raise MappingError(f"0x{raw[start]:02x} at byte {start} is no map")
    return pairs_of(items)


def pairs_of(items: list[Span]) -> list[tuple[Span, Span]]:
    """Return the items of a map as pairs of key and value."""
    return list(zip(items[::2], items[1::2], strict=True))
