"""AMQP 0-9-1 message properties, encoded and as values, with the names of `bridge.wire.table`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from bridge.wire.table import (
    FieldValue,
    Table,
    array,
    bytes_in,
    decimal_double,
    decode_table,
    encode_fields,
    encode_table,
    field,
    integer_in,
    long,
    python_value,
    read_short_string,
    short_string,
    shown_string,
    shown_text,
    table_of,
    text,
    text_in,
)

__all__ = [
    "FieldValue",
    "Properties",
    "Table",
    "array",
    "bytes_in",
    "decimal_double",
    "decode_table",
    "encode_fields",
    "encode_table",
    "field",
    "integer_in",
    "long",
    "python_value",
    "read_short_string",
    "short_string",
    "shown_string",
    "shown_text",
    "table_of",
    "text",
    "text_in",
    "with_fields",
    "without_fields",
]

_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_OCTET_VALUE = struct.Struct(">B")
_TIMESTAMP = struct.Struct(">Q")


def _write_octet(value: object) -> bytes:
    return _OCTET_VALUE.pack(value)


def _write_timestamp(value: object) -> bytes:
    return _TIMESTAMP.pack(value)


def _read_octet(raw: bytes, at: int) -> tuple[int, int]:
    return raw[at], at + 1


def _read_timestamp(raw: bytes, at: int) -> tuple[int, int]:
    return _TIMESTAMP.unpack_from(raw, at)[0], at + 8


_Writer = Callable[..., bytes]
_Reader = Callable[[bytes, int], tuple[object, int]]

_STRING: tuple[_Writer, _Reader] = (short_string, read_short_string)
_OCTET: tuple[_Writer, _Reader] = (_write_octet, _read_octet)

_PROPERTIES: tuple[tuple[int, str, _Writer, _Reader], ...] = tuple(
    (1 << (15 - index), name, *codec)
    for index, (name, codec) in enumerate(
        (
            ("content_type", _STRING),
            ("content_encoding", _STRING),
            ("headers", (encode_table, decode_table)),
            ("delivery_mode", _OCTET),
            ("priority", _OCTET),
            ("correlation_id", _STRING),
            ("reply_to", _STRING),
            ("expiration", _STRING),
            ("message_id", _STRING),
            ("timestamp", (_write_timestamp, _read_timestamp)),
            ("type", _STRING),
            ("user_id", _STRING),
            ("app_id", _STRING),
            ("cluster_id", _STRING),
        )
    )
)
"""(flag, name, writer, reader) in the order of the wire (AMQP 0-9-1, basic class)."""

_HEADERS_FLAG = 1 << 13
_MODE_FLAG = 1 << 12
_ID_FLAG = 1 << 7
_KNOWN_FLAGS = sum(flag for flag, *_ in _PROPERTIES)


@dataclass(slots=True)
class Properties:
    """The properties of a message; None means that the property is absent."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None

    def encode(self) -> bytes:
        """Return flags and list, as a content header frame holds them behind the body size."""
        flags = 0
        parts = [b""]
        try:
            for flag, name, write, _ in _PROPERTIES:
                value = getattr(self, name)
                if value is not None:
                    flags |= flag
                    parts.append(write(value))
        except struct.error as error:
            raise ValueError(f"the property {name} does not fit: {error}") from error
        parts[0] = _FLAGS.pack(flags)
        return b"".join(parts)

    @classmethod
    def decode(cls, raw: bytes) -> Properties:
        """Decode the bytes of `encode`; raises ValueError for other bytes."""
        properties = cls()
        try:
            (flags,) = _FLAGS.unpack_from(raw, 0)
            if flags & ~_KNOWN_FLAGS:
                raise ValueError(f"unknown property flags 0x{flags:04x}")
            at = 2
            for flag, name, _, read in _PROPERTIES:
                if not flags & flag:
                    continue
                value: object
                if flag == _MODE_FLAG:  # most messages have a mode and an id: no call for these
                    value, at = raw[at], at + 1
                elif flag == _ID_FLAG:
                    start = at + 1
                    at = start + raw[at]
                    if at > len(raw):
                        raise ValueError("a message id runs past the end")
                    value = raw[start:at].decode("utf-8", "surrogateescape")
                else:
                    value, at = read(raw, at)
                setattr(properties, name, value)
        except (struct.error, IndexError) as error:
            raise ValueError("message properties end too early") from error
        if at != len(raw):
            raise ValueError(f"{len(raw) - at} bytes too many behind the message properties")
        return properties


def with_fields(raw: bytes, fields: bytes) -> bytes:
    """Put encoded fields in front of the headers of encoded properties, without decoding them.

    The fields come first because RabbitMQ and this module use the first of two equal keys.

    Args:
        raw: properties as `Properties.encode` writes them.
        fields: the result of `encode_fields`.
    """
    flags = (raw[0] << 8) | raw[1]
    at = 2
    if flags & 0x8000:
        at += 1 + raw[at]
    if flags & 0x4000:
        at += 1 + raw[at]
    if flags & _HEADERS_FLAG:
        size = _LENGTH.unpack_from(raw, at)[0] + len(fields)
        return b"".join((raw[:at], _LENGTH.pack(size), fields, raw[at + 4 :]))
    head = _FLAGS.pack(flags | _HEADERS_FLAG) + raw[2:at]
    return b"".join((head, _LENGTH.pack(len(fields)), fields, raw[at:]))


def without_fields(raw: bytes, start: bytes, size: int) -> tuple[bytes, bytes] | None:
    """Take encoded fields off the front of the headers, as `with_fields` put them.

    Args:
        raw: encoded properties.
        start: how the fields begin.
        size: their bytes.

    Returns the fields and the properties without them; `None` if others are in front.
    """
    if len(raw) < 2 or not raw[0] & 0x20:
        return None
    at = 2
    for flag in (0x80, 0x40):
        if raw[0] & flag:
            if at >= len(raw):
                return None
            at += 1 + raw[at]
    fields_at = at + 4
    if raw[fields_at : fields_at + len(start)] != start or len(raw) < fields_at + size:
        return None
    table_bytes = _LENGTH.unpack_from(raw, at)[0] - size
    if table_bytes < 0:
        return None
    rest = b"".join((raw[:at], _LENGTH.pack(table_bytes), raw[fields_at + size :]))
    return raw[fields_at : fields_at + size], rest
