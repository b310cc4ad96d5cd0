"""Whether encoded properties are canonical (see `wire.envelope`), without decoding them.

The sequencer stamps the properties of an envelope's items without decoding them. A bridge writes
properties that RabbitMQ takes. But any RabbitMQ user may publish an envelope, and RabbitMQ closes a
connection or a channel over many forms of properties. Properties that fail the check here are
decoded and cleaned.
"""

from __future__ import annotations

import math
import struct

from bridge.wire import headers
from bridge.wire.table import NUMBERS

_NEVER = 0x0917
"""Flags of priority, expiration, user_id, cluster_id, and those that no property has."""

_SHORT_BEFORE = (0x8000, 0x4000)
_SHORT_BEHIND = (0x0400, 0x0200, 0x0080)
_SHORT_LAST = (0x0020, 0x0008)

_WIDTHS = {ord(letter): form.size for letter, form in NUMBERS.items() if letter not in "fd"}
_WIDTHS |= {ord("t"): 1, ord("V"): 0}

_OWN_PREFIX = headers.OWN_PREFIX.encode()
_OWN_CONTENT = frozenset(name.encode() for name in headers.OWN_CONTENT | {headers.FORWARDED})
_RESERVED = frozenset(
    name.encode() for name in headers.BROKER_ONLY | headers.STAMPED - headers.OF_FORWARDED
)
_STREAM_PREFIX = headers.STREAM_PREFIX.encode()
_DIRECT_REPLY_TO = headers.DIRECT_REPLY_TO.encode()
_FLOAT = struct.Struct(">f")
_DOUBLE = struct.Struct(">d")


def is_canonical(raw: bytes) -> bool:
    """Whether RabbitMQ surely takes the properties, with a stamp in front of their headers."""
    size = len(raw)
    if size < 3:
        return False
    flags = (raw[0] << 8) | raw[1]
    if flags & _NEVER or not flags & 0x1000:
        return False
    try:
        at = 2
        for flag in _SHORT_BEFORE:
            if flags & flag:
                at += 1 + raw[at]
        if flags & 0x2000:
            end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
            if end > size or not _are_fields(raw, at + 4, end):
                return False
            at = end
        if raw[at] != 2:
            return False
        at += 1
        for flag in _SHORT_BEHIND:
            if flags & flag:
                if flag == 0x0200 and not _is_reply_to(raw[at + 1 : at + 1 + raw[at]]):
                    return False
                at += 1 + raw[at]
        if flags & 0x0040:
            at += 8
        for flag in _SHORT_LAST:
            if flags & flag:
                at += 1 + raw[at]
    except IndexError:
        return False
    return at == size


def _is_reply_to(text: bytes) -> bool:
    """Whether a reply_to is UTF-8, as streams of 4.3 need, and not RabbitMQ's direct reply-to."""
    if text == _DIRECT_REPLY_TO:
        return False
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _are_fields(raw: bytes, at: int, end: int) -> bool:
    """Whether all fields are plain, and none has a name that only a bridge or broker may write."""
    while at < end:
        key_end = at + 1 + raw[at]
        key = raw[at + 1 : key_end]
        if key in _RESERVED or key.startswith(_STREAM_PREFIX):
            return False
        if key.startswith(_OWN_PREFIX) and key not in _OWN_CONTENT:
            return False
        letter = raw[key_end]
        at = key_end + 1
        width = _WIDTHS.get(letter)
        if width is not None:
            at += width
        elif letter == 0x53 or letter == 0x78:  # text and bytes
            at += 4 + int.from_bytes(raw[at : at + 4], "big")
        elif letter == 0x64 and at + 8 <= end:
            if not math.isfinite(_DOUBLE.unpack_from(raw, at)[0]):
                return False
            at += 8
        elif letter == 0x66 and at + 4 <= end:
            if not math.isfinite(_FLOAT.unpack_from(raw, at)[0]):
                return False
            at += 4
        else:
            return False
    return at == end
