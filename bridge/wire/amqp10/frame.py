"""Frames and protocol headers (part 2, sections 2.2 and 2.3)."""

from __future__ import annotations

import struct
from enum import Enum
from typing import Any, Final

from bridge.wire.amqp10.composite import encode_composite
from bridge.wire.amqp10.performatives import Accepted, Disposition
from bridge.wire.amqp10.primitives import encode_binary, encode_uint

FRAME_SIZE_MIN_MAX: Final = 512
"""The smallest max-frame-size that a peer may ask for (MIN-MAX-FRAME-SIZE)."""

HEADER_SIZE: Final = 8
"""Bytes of a frame in front of its body, as we write it (data offset 2)."""

AMQP_FRAME: Final = 0x00
SASL_FRAME: Final = 0x01


class ProtocolHeader(Enum):
    """The eight bytes that open a layer."""

    AMQP = b"AMQP\x00\x01\x00\x00"
    TLS = b"AMQP\x02\x01\x00\x00"
    SASL = b"AMQP\x03\x01\x00\x00"


EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""A frame without a body: it says that the peer is alive."""

_pack_header = struct.Struct(">IBBH").pack


def encode_frame(channel: int, performative: Any, *, frame_type: int = AMQP_FRAME) -> bytes:
    """Return a whole frame that holds one performative and no payload."""
    body = encode_composite(performative)
    return _pack_header(HEADER_SIZE + len(body), 2, frame_type, channel) + body


_ACCEPTED_TAIL: Final = b"\x41" + encode_composite(Accepted()) + b"\x42"


def encode_disposition(channel: int, disposition: Disposition) -> bytes:
    """Return a disposition frame; the common case, settled and accepted, has a faster path."""
    if disposition.settled and type(disposition.state) is Accepted and not disposition.batchable:
        fields = (
            (b"\x06\x41" if disposition.role else b"\x06\x42")
            + encode_uint(disposition.first)
            + (b"\x40" if disposition.last is None else encode_uint(disposition.last))
            + _ACCEPTED_TAIL
        )
        size = len(fields)
        return _pack_header(13 + size, 2, AMQP_FRAME, channel) + (
            b"\x00\x53\x15\xc0" + bytes((size,)) + fields
        )
    return encode_frame(channel, disposition)


_FALSE_MORE: Final = b"\x42\x40\x40\x42\x42\x42"
_TRUE_MORE: Final = b"\x41\x40\x40\x42\x42\x42"


def encode_transfer(
    channel: int,
    handle: int,
    delivery_id: int | None,
    delivery_tag: bytes | None,
    message_format: int | None,
    *,
    is_settled: bool,
    is_more: bool,
    payload: bytes,
) -> list[bytes]:
    """Return the pieces of a transfer frame; all eleven fields are written."""
    fields = (
        b"\x0b"
        + encode_uint(handle)
        + (b"\x40" if delivery_id is None else encode_uint(delivery_id))
        + (b"\x40" if delivery_tag is None else encode_binary(delivery_tag))
        + (b"\x40" if message_format is None else encode_uint(message_format))
        + (b"\x41" if is_settled else b"\x42")
        + (_TRUE_MORE if is_more else _FALSE_MORE)
    )
    size = len(fields)
    return [
        _pack_header(HEADER_SIZE + 5 + size + len(payload), 2, AMQP_FRAME, channel)
        + b"\x00\x53\x14\xc0"
        + bytes((size,))
        + fields,
        payload,
    ]


def transfer_overhead(delivery_tag: bytes | None) -> int:
    """Return the maximum number of bytes of a transfer frame beside its payload."""
    return HEADER_SIZE + 5 + 32 + (2 + len(delivery_tag) if delivery_tag else 0)
