"""AMQP 0-9-1 field tables, encoded and as values.

A field keeps its type letter, so a decoded field is encoded again byte for byte. The letters have
RabbitMQ's meaning (https://www.rabbitmq.com/amqp-0-9-1-errata#section_3), which differs from the
specification's in `s` (16 bits signed) and `l` (64 bits signed).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import cast

FieldValue = tuple[str, object]
"""(type letter, value). `F` holds a Table, `A` a list of fields, `S` and `x` bytes, `T` seconds,
`D` (scale, unscaled value), `V` None."""

Table = dict[str, FieldValue]
"""A field table; the order of insertion is the order on the wire."""

DEPTH_MAX = 64
"""Maximum nesting of tables: far above any use, far below Python's recursion limit."""

SHORT_STRING_BYTES_MAX = 255
"""A short string's length is one octet (AMQP 0-9-1, 4.2.5.3)."""

NUMBERS: dict[str, struct.Struct] = {
    "b": struct.Struct(">b"),
    "B": struct.Struct(">B"),
    "s": struct.Struct(">h"),
    "u": struct.Struct(">H"),
    "I": struct.Struct(">i"),
    "i": struct.Struct(">I"),
    "l": struct.Struct(">q"),
    "L": struct.Struct(">q"),
    "f": struct.Struct(">f"),
    "d": struct.Struct(">d"),
    "T": struct.Struct(">Q"),
}
"""Type letter -> form of a number."""

_LENGTH = struct.Struct(">I")
_DECIMAL = struct.Struct(">BI")

_ABSENT: FieldValue = ("V", None)

_INT32_MAX = 2**31 - 1
_SIGN, _SECOND = 2**31, 2**30
_LONG_MAX = 2**63 - 1


def short_string(value: str) -> bytes:
    """Encode a short string; ValueError when it is longer than 255 bytes."""
    raw = value.encode("utf-8", "surrogateescape")
    if len(raw) > SHORT_STRING_BYTES_MAX:
        raise ValueError(f"a short string of {len(raw)} bytes; 255 is the most: {value[:40]!r}...")
    return bytes((len(raw),)) + raw


def read_short_string(raw: bytes, at: int) -> tuple[str, int]:
    """Read a short string; return the string and the position behind it.

    Bytes that are not UTF-8 become surrogate escapes, which `short_string` turns back.
    """
    start = at + 1
    end = start + raw[at]
    if end > len(raw):
        raise ValueError("a short string runs past the end")
    return raw[start:end].decode("utf-8", "surrogateescape"), end


def _read_block(raw: bytes, at: int) -> tuple[int, int]:
    start = at + 4
    end = start + cast(int, _LENGTH.unpack_from(raw, at)[0])
    if end > len(raw):
        raise ValueError("a long string, table or array runs past the end")
    return start, end


def _write_field(field: FieldValue, depth: int) -> bytes:
    letter, value = field
    number = NUMBERS.get(letter)
    kind = letter.encode()
    if number is not None:
        return kind + number.pack(value)
    match letter:
        case "S" | "x":
            return kind + _LENGTH.pack(len(cast(bytes, value))) + cast(bytes, value)
        case "t":
            return b"t\x01" if value else b"t\x00"
        case "V":
            return b"V"
        case "F":
            return kind + _write_table(cast(Table, value), depth + 1)
        case "A":
            if depth >= DEPTH_MAX:
                raise ValueError(f"a field table nests deeper than {DEPTH_MAX}")
            items = cast("list[FieldValue]", value)
            inner = b"".join([_write_field(item, depth + 1) for item in items])
            return kind + _LENGTH.pack(len(inner)) + inner
        case "D":
            return kind + _DECIMAL.pack(*cast("tuple[int, int]", value))
    raise ValueError(f"no AMQP 0-9-1 field has the type letter {letter!r}")


def _write_table(table: Table, depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise ValueError(f"a field table nests deeper than {DEPTH_MAX}")
    parts: list[bytes] = []
    for key, field in table.items():
        parts += (short_string(key), _write_field(field, depth))
    inner = b"".join(parts)
    return _LENGTH.pack(len(inner)) + inner


def encode_table(table: Table) -> bytes:
    """Encode a table after its length; ValueError if a value does not fit."""
    try:
        return _write_table(table, 0)
    except (struct.error, TypeError) as error:
        raise ValueError(f"a value does not fit its field type: {error}") from error


def encode_fields(table: Table) -> bytes:
    """Encode a table's fields without the length in front, to be put into another table."""
    return encode_table(table)[4:]


def _read_field(raw: bytes, at: int, depth: int) -> tuple[FieldValue, int]:
    letter = chr(raw[at])
    at += 1
    number = NUMBERS.get(letter)
    if number is not None:
        return (letter, number.unpack_from(raw, at)[0]), at + number.size
    match letter:
        case "S" | "x":
            start, end = _read_block(raw, at)
            return (letter, raw[start:end]), end
        case "t":
            return (letter, raw[at] != 0), at + 1
        case "V":
            return (letter, None), at
        case "F":
            start, end = _read_block(raw, at)
            return (letter, _read_table(raw, start, end, depth + 1)), end
        case "A":
            start, end = _read_block(raw, at)
            return (letter, _read_array(raw, start, end, depth + 1)), end
        case "D":
            return (letter, _DECIMAL.unpack_from(raw, at)), at + _DECIMAL.size
    raise ValueError(f"unknown field type letter {letter!r}")


def _read_array(raw: bytes, at: int, end: int, depth: int) -> list[FieldValue]:
    if depth > DEPTH_MAX:
        raise ValueError(f"a field table nests deeper than {DEPTH_MAX}")
    items = []
    while at < end:
        item, at = _read_field(raw, at, depth)
        items.append(item)
    if at != end:
        raise ValueError("an array's last value runs past its end")
    return items


def _read_table(raw: bytes, at: int, end: int, depth: int) -> Table:
    if depth > DEPTH_MAX:
        raise ValueError(f"a field table nests deeper than {DEPTH_MAX}")
    table: Table = {}
    while at < end:
        # Every header of every message comes here: most are read without a call.
        start = at + 1
        at = start + raw[at]
        key = raw[start:at].decode("utf-8", "surrogateescape")
        letter = chr(raw[at])
        number = NUMBERS.get(letter)
        field: FieldValue
        if number is not None:
            field = letter, number.unpack_from(raw, at + 1)[0]
            at += 1 + number.size
        elif letter == "S" or letter == "x":
            start = at + 5
            at = start + cast(int, _LENGTH.unpack_from(raw, at + 1)[0])
            if at > end:
                raise ValueError("a long string runs past the end")
            field = letter, raw[start:at]
        else:
            field, at = _read_field(raw, at, depth)
        # RabbitMQ looks a key up with lists:keyfind, so of two equal keys the first counts.
        table.setdefault(key, field)
    if at != end:
        raise ValueError("a table's last field runs past its end")
    return table


def decode_table(raw: bytes, at: int = 0) -> tuple[Table, int]:
    """Read a table after its length; return the table and the position behind the table."""
    try:
        end = at + 4 + cast(int, _LENGTH.unpack_from(raw, at)[0])
        if end > len(raw):
            raise ValueError("a field table runs past the end")
        return _read_table(raw, at + 4, end, 0), end
    except (struct.error, IndexError) as error:
        raise ValueError("a field table ends too early") from error


def shown_text(raw: bytes) -> str:
    """Return bytes as valid text for clients: RabbitMQ takes any bytes, AMQP 1.0 UTF-8 alone."""
    return raw.decode("utf-8", "replace")


def shown_string(value: str) -> str:
    """Return a short string as valid text for clients."""
    return shown_text(value.encode("utf-8", "surrogateescape"))


def text_in(table: Table, name: str) -> str | None:
    """Return a field's text, valid for clients; `None` if absent or of another type."""
    raw = bytes_in(table, name)
    return None if raw is None else shown_text(raw)


def bytes_in(table: Table, name: str) -> bytes | None:
    """Return a field's bytes, of text or of a byte array; `None` if absent or of another type."""
    value = table.get(name, _ABSENT)[1]
    return value if isinstance(value, bytes) else None


def integer_in(table: Table, name: str) -> int | None:
    """Return a field's whole number; `None` if absent or of another type."""
    value = table.get(name, _ABSENT)[1]
    return value if isinstance(value, int) else None


def text(value: str) -> FieldValue:
    """Make a long string."""
    return "S", value.encode("utf-8", "surrogateescape")


def long(value: int) -> FieldValue:
    """Make a signed 64-bit integer."""
    return "l", value


def array(items: list[FieldValue]) -> FieldValue:
    """Make an array of fields."""
    return "A", items


def field(value: object) -> FieldValue:
    """Make the usual field of a plain Python value (arguments, bindings)."""
    if isinstance(value, tuple):
        return value
    match value:
        case None:
            return "V", None
        case bool():
            return "t", value
        case int():
            if not -_LONG_MAX - 1 <= value <= _LONG_MAX:
                raise ValueError(f"{value} does not fit a signed 64-bit integer")
            return ("I" if -_INT32_MAX - 1 <= value <= _INT32_MAX else "l"), value
        case float():
            return "d", value
        case str():
            return text(value)
        case bytes():
            return "x", value
        case Mapping():
            return "F", table_of(value)
        case list():
            return "A", [field(item) for item in value]
    raise ValueError(f"no field type for a {type(value).__name__}")


def table_of(plain: Mapping[str, object]) -> Table:
    """Make a table of plain Python values; fields among them stay as they are."""
    return {key: field(value) for key, value in plain.items()}


def decimal_double(value: FieldValue) -> float:
    """Return a decimal (`D`) as a double, which shows each of its digits: it has ten at most.

    A negative one is a sign and 31 bits by RabbitMQ's client for .NET, and two's complement by all
    others. Down to -(2^30 - 1) the bit behind the sign tells which: it is set in the second alone.
    """
    scale, unscaled = cast("tuple[int, int]", value[1])
    if unscaled >= _SIGN:
        unscaled = unscaled - 2 * _SIGN if unscaled & _SECOND else _SIGN - unscaled
    return float(unscaled / 10**scale)


def python_value(value: FieldValue) -> object:
    """Return a field as plain Python, for logs and for people."""
    letter, inner = value
    match letter:
        case "S":
            return cast(bytes, inner).decode("utf-8", "surrogateescape")
        case "F":
            return {key: python_value(item) for key, item in cast(Table, inner).items()}
        case "A":
            return [python_value(item) for item in cast("list[FieldValue]", inner)]
    return inner
