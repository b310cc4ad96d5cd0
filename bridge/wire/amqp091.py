"""AMQP 0-9-1 frames and methods, encoded and as values.

A frame is: type (octet), channel (short), size (long), payload, 0xCE. A method's arguments are
described by one letter each in `METHODS`, after the specification's grammar
(https://www.rabbitmq.com/resources/specs/amqp0-9-1.extended.xml).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from bridge.wire.basic import (
    decode_table,
    encode_table,
    read_short_string,
    short_string,
)

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_OVERHEAD: Final = 8
"""Octets of a frame around its payload; `frame_max` includes them."""
CONTENT_HEADER_BYTES: Final = 12
"""Octets of a content header before the properties."""

HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

FRAME_HEAD: Final = struct.Struct(">BHI")
"""Type, channel and payload size."""

CONNECTION_START: Final = 10 << 16 | 10
CONNECTION_START_OK: Final = 10 << 16 | 11
CONNECTION_SECURE: Final = 10 << 16 | 20
CONNECTION_TUNE: Final = 10 << 16 | 30
CONNECTION_TUNE_OK: Final = 10 << 16 | 31
CONNECTION_OPEN: Final = 10 << 16 | 40
CONNECTION_OPEN_OK: Final = 10 << 16 | 41
CONNECTION_CLOSE: Final = 10 << 16 | 50
CONNECTION_CLOSE_OK: Final = 10 << 16 | 51
CONNECTION_BLOCKED: Final = 10 << 16 | 60
CONNECTION_UNBLOCKED: Final = 10 << 16 | 61
CHANNEL_OPEN: Final = 20 << 16 | 10
CHANNEL_OPEN_OK: Final = 20 << 16 | 11
CHANNEL_FLOW: Final = 20 << 16 | 20
CHANNEL_FLOW_OK: Final = 20 << 16 | 21
CHANNEL_CLOSE: Final = 20 << 16 | 40
CHANNEL_CLOSE_OK: Final = 20 << 16 | 41
EXCHANGE_DECLARE: Final = 40 << 16 | 10
EXCHANGE_DECLARE_OK: Final = 40 << 16 | 11
EXCHANGE_DELETE: Final = 40 << 16 | 20
EXCHANGE_DELETE_OK: Final = 40 << 16 | 21
EXCHANGE_BIND: Final = 40 << 16 | 30
EXCHANGE_BIND_OK: Final = 40 << 16 | 31
QUEUE_DECLARE: Final = 50 << 16 | 10
QUEUE_DECLARE_OK: Final = 50 << 16 | 11
QUEUE_BIND: Final = 50 << 16 | 20
QUEUE_BIND_OK: Final = 50 << 16 | 21
QUEUE_DELETE: Final = 50 << 16 | 40
QUEUE_DELETE_OK: Final = 50 << 16 | 41
QUEUE_UNBIND: Final = 50 << 16 | 50
QUEUE_UNBIND_OK: Final = 50 << 16 | 51
BASIC_QOS: Final = 60 << 16 | 10
BASIC_QOS_OK: Final = 60 << 16 | 11
BASIC_CONSUME: Final = 60 << 16 | 20
BASIC_CONSUME_OK: Final = 60 << 16 | 21
BASIC_CANCEL: Final = 60 << 16 | 30
BASIC_CANCEL_OK: Final = 60 << 16 | 31
BASIC_PUBLISH: Final = 60 << 16 | 40
BASIC_RETURN: Final = 60 << 16 | 50
BASIC_DELIVER: Final = 60 << 16 | 60
BASIC_GET: Final = 60 << 16 | 70
BASIC_GET_OK: Final = 60 << 16 | 71
BASIC_GET_EMPTY: Final = 60 << 16 | 72
BASIC_ACK: Final = 60 << 16 | 80
BASIC_REJECT: Final = 60 << 16 | 90
BASIC_NACK: Final = 60 << 16 | 120
CONFIRM_SELECT: Final = 85 << 16 | 10
CONFIRM_SELECT_OK: Final = 85 << 16 | 11

METHODS: dict[int, str] = {
    CONNECTION_START: "ooTSS",
    CONNECTION_START_OK: "TsSs",
    CONNECTION_SECURE: "S",
    CONNECTION_TUNE: "hlh",
    CONNECTION_TUNE_OK: "hlh",
    CONNECTION_OPEN: "ssb",
    CONNECTION_OPEN_OK: "s",
    CONNECTION_CLOSE: "hshh",
    CONNECTION_CLOSE_OK: "",
    CONNECTION_BLOCKED: "s",
    CONNECTION_UNBLOCKED: "",
    CHANNEL_OPEN: "s",
    CHANNEL_OPEN_OK: "S",
    CHANNEL_FLOW: "b",
    CHANNEL_FLOW_OK: "b",
    CHANNEL_CLOSE: "hshh",
    CHANNEL_CLOSE_OK: "",
    EXCHANGE_DECLARE: "hssbbbbbT",
    EXCHANGE_DECLARE_OK: "",
    EXCHANGE_DELETE: "hsbb",
    EXCHANGE_DELETE_OK: "",
    EXCHANGE_BIND: "hsssbT",
    EXCHANGE_BIND_OK: "",
    QUEUE_DECLARE: "hsbbbbbT",
    QUEUE_DECLARE_OK: "sll",
    QUEUE_BIND: "hsssbT",
    QUEUE_BIND_OK: "",
    QUEUE_DELETE: "hsbbb",
    QUEUE_DELETE_OK: "l",
    QUEUE_UNBIND: "hsssT",
    QUEUE_UNBIND_OK: "",
    BASIC_QOS: "lhb",
    BASIC_QOS_OK: "",
    BASIC_CONSUME: "hssbbbbT",
    BASIC_CONSUME_OK: "s",
    BASIC_CANCEL: "sb",
    BASIC_CANCEL_OK: "s",
    BASIC_PUBLISH: "hssbb",
    BASIC_RETURN: "hsss",
    BASIC_DELIVER: "sqbss",
    BASIC_GET: "hsb",
    BASIC_GET_OK: "qbssl",
    BASIC_GET_EMPTY: "s",
    BASIC_ACK: "qb",
    BASIC_REJECT: "qb",
    BASIC_NACK: "qbb",
    CONFIRM_SELECT: "b",
    CONFIRM_SELECT_OK: "",
}
"""The arguments of each method: o octet, h short, l long, q long-long, s short string, S long
string, T table, b bit (bits in a row share octets, the first in the lowest bit)."""

_NUMBERS = {
    "o": struct.Struct(">B"),
    "h": struct.Struct(">H"),
    "l": struct.Struct(">I"),
    "q": struct.Struct(">Q"),
}
_METHOD_ID = struct.Struct(">I")
_LENGTH = struct.Struct(">I")
_CONTENT_HEAD = struct.Struct(">BHIHHQ")
_BODY_HEAD = struct.Struct(">BBHI")
_SETTLE = struct.Struct(">BHIIQBB")


class Method(NamedTuple):
    """A decoded method."""

    number: int
    arguments: tuple[object, ...]


def method_frame(channel: int, method: int, *arguments: object) -> bytes:
    """Return a whole method frame; ValueError when an argument does not fit."""
    parts = [_METHOD_ID.pack(method)]
    bits = -1
    count = 0
    try:
        for kind, value in zip(METHODS[method], arguments, strict=True):
            if kind == "b":
                if bits < 0 or count == 8:
                    bits, count = len(parts), 0
                    parts.append(b"\x00")
                if value:
                    parts[bits] = bytes((parts[bits][0] | 1 << count,))
                count += 1
                continue
            bits = -1
            layout = _NUMBERS.get(kind)
            if layout is not None:
                parts.append(layout.pack(value))
            elif kind == "s":
                assert isinstance(value, str)
                parts.append(short_string(value))
            else:
                parts.append(_argument(kind, value))
    except (struct.error, TypeError) as error:
        raise ValueError(f"an argument of method {method:#x} does not fit: {error}") from error
    payload = b"".join(parts)
    return b"".join((FRAME_HEAD.pack(FRAME_METHOD, channel, len(payload)), payload, b"\xce"))


def _argument(kind: str, value: object) -> bytes:
    if kind == "S":
        assert isinstance(value, bytes)
        return _LENGTH.pack(len(value)) + value
    assert kind == "T"
    assert isinstance(value, dict)
    return encode_table(value)


def read_method(raw: bytes, at: int, end: int) -> Method:
    """Read a method frame's payload; ValueError for an unknown method or a wrong length."""
    try:
        number: int = _METHOD_ID.unpack_from(raw, at)[0]
        kinds = METHODS.get(number)
        if kinds is None:
            raise ValueError(f"unknown method {number >> 16}.{number & 0xFFFF}")
        at += 4
        arguments: list[object] = []
        bits = 8
        octet = 0
        for kind in kinds:
            if kind == "b":
                if bits == 8:
                    octet, bits = raw[at], 0
                    at += 1
                arguments.append(bool(octet >> bits & 1))
                bits += 1
                continue
            bits = 8
            layout = _NUMBERS.get(kind)
            if layout is not None:
                arguments.append(layout.unpack_from(raw, at)[0])
                at += layout.size
            else:
                value, at = _read_argument(kind, raw, at)
                arguments.append(value)
    except (struct.error, IndexError) as error:
        raise ValueError("a method frame ends too early") from error
    if at != end:
        raise ValueError(f"method {number >> 16}.{number & 0xFFFF} has a wrong length")
    return Method(number, tuple(arguments))


def _read_argument(kind: str, raw: bytes, at: int) -> tuple[object, int]:
    if kind == "s":
        return read_short_string(raw, at)
    if kind == "S":
        start = at + 4
        end = start + _LENGTH.unpack_from(raw, at)[0]
        return raw[start:end], end
    assert kind == "T"
    return decode_table(raw, at)


def publish_method(channel: int, exchange: str, routing_key: str, mandatory: bool) -> bytes:
    """Return the frame of basic.publish, reusable for the same route."""
    return method_frame(channel, BASIC_PUBLISH, 0, exchange, routing_key, mandatory, False)


def content_frames(
    channel: int, properties: bytes, body: bytes, payload_max: int
) -> tuple[bytes, ...]:
    """Return the content header and body frames of a message, in parts that are not yet joined.

    Args:
        channel: the channel's number.
        properties: flags and list, as `Properties.encode` writes them.
        body: the whole body.
        payload_max: frame_max without the frame's overhead.
    """
    size = len(body)
    head = _CONTENT_HEAD.pack(
        FRAME_HEADER, channel, len(properties) + CONTENT_HEADER_BYTES, 60, 0, size
    )
    if size == 0:
        return head, properties, b"\xce"
    if size <= payload_max:
        glue = _BODY_HEAD.pack(FRAME_END, FRAME_BODY, channel, size)
        return head, properties, glue, body, b"\xce"
    parts = [head, properties]
    for start in range(0, size, payload_max):
        chunk = body[start : start + payload_max]
        parts += (_BODY_HEAD.pack(FRAME_END, FRAME_BODY, channel, len(chunk)), chunk)
    parts.append(b"\xce")
    return tuple(parts)


def settle_frame(channel: int, method: int, tag: int, bits: int) -> bytes:
    """Return basic.ack (bit 0 multiple), reject (bit 0 requeue) or nack (multiple, requeue)."""
    return _SETTLE.pack(FRAME_METHOD, channel, 13, method, tag, bits, FRAME_END)
